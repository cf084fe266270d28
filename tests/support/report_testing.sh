# Runs for the tests of pages. Source this after cli_testing.sh.
# shellcheck shell=bash

# A name that is markup if a page does not show it as text, also inside an attribute and a script.
hostile='"'"'"'></script></title><h1 id=injected>x</h1><img src=x onerror=alert(1)><script>alert(2)</script>&amp;'

# as_json TEXT: the text as a string of JSON.
as_json()
{
    local text=${1//\\/\\\\}
    printf '"%s"' "${text//\"/\\\"}"
}

# hostile_run FOLDER: a run whose files have markup wherever they have texts.
hostile_run()
{
    local h
    h=$(as_json "$hostile")
    mkdir -p "$1"
    {
        echo "{\"event\":\"settings\",\"model\":$h,\"data\":$h,\"devices in use\":$h,$h:$h}"
        echo "{\"event\":\"world\",\"step\":3,\"processes_before\":2,\"processes\":1,\"reason\":$h}"
        echo '{"event":"epoch","epoch":1,"train_loss":2,"train_accuracy":0.25,"rate":0.1,"total_seconds":9}'
        echo '{"event":"epoch","epoch":2,"train_loss":1,"train_accuracy":0.5,"rate":0.1,"total_seconds":19}'
        echo "{\"event\":\"done\",\"digest\":$h,\"state_digest\":$h}"
    } >"$1/epochs.jsonl"
    echo '{"step":1,"epoch":0.5,"train_loss":2.5,"train_accuracy":0.1,"rate":0.1}' >"$1/steps.jsonl"
    echo "{\"count\":4,\"accuracy\":0.5,\"classes\":[{\"name\":$h},{\"name\":null}],\"confusion\":[[1,1],[1,1]]}" \
        >"$1/evaluation.json"
    {
        echo "{\"traceEvents\":[{\"ph\":\"M\",\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":$h}}"
        for i in 0 10 20 30; do
            echo ",{\"ph\":\"X\",\"tid\":1,\"ts\":$i,\"dur\":2,\"name\":\"push a step\",\"cat\":\"host\"}"
            echo ",{\"ph\":\"X\",\"tid\":1,\"ts\":$((i + 3)),\"dur\":5,\"name\":$h,\"cat\":\"operator\"}"
        done
        echo ']}'
    } >"$1/trace.json"
}

# long_run FOLDER: a run of a million steps, as lk_callback_steps thins them.
long_run()
{
    mkdir -p "$1"
    awk 'BEGIN { for (step = each = 1; step <= 1000000; step++) {
            if (step / 2 / each >= 512) each *= 2
            if (step % each && step < 1000000) continue
            printf "{\"step\":%d,\"epoch\":%.4f,\"train_loss\":%.5f,\"train_accuracy\":%.5f,\"rate\":%.6f,\"skipped_steps\":0}\n",
                step, step / 10000, 0.3 + 2 / (1 + step / 5000) + 0.05 * sin(step), 0.9 - 0.8 / (1 + step / 4000), 0.1 * (1 - step / 1000001)
        } }' >"$1/steps.jsonl"
    awk 'BEGIN {
        print "{\"event\":\"settings\",\"model\":\"resnet18\",\"data\":\"synthetic\",\"devices in use\":\"cpu:0\"}"
        for (e = 1; e <= 100; e++)
            printf "{\"event\":\"epoch\",\"epoch\":%d,\"train_loss\":%.5f,\"train_accuracy\":%.5f,\"val_loss\":%.5f," \
                "\"val_accuracy\":%.5f,\"rate\":0.1,\"total_seconds\":%d,\"images_per_second\":1000}\n", e, 0.3 + 2 / (1 + 2 * e),
                0.9 - 0.8 / (1 + 2 * e), 0.4 + 2 / (1 + 2 * e), 0.88 - 0.8 / (1 + 2 * e), 60 * e
        print "{\"event\":\"done\",\"digest\":\"0123456789abcdef0123456789abcdef\"}" }' >"$1/epochs.jsonl"
}
