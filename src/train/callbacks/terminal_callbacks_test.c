/* Callbacks that redraw on a terminal and print lines, or nothing, on other streams. */
#include "lockstep/callbacks.h"
#include "train/training_testing.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { EPOCHS = 3, STEPS = 3 };

static lk_trainer *three_epochs(void)
{
    lk_train_config config = training_of(8 * STEPS, 8 * 4 - 1, 8, 0);
    config.epochs = EPOCHS;
    config.devices.spec = "1";
    return new_trainer(&config);
}

/* Takes ownership of the callback, or fails the test. */
static void train_with(lk_callback callback)
{
    lk_trainer *trainer = three_epochs();
    lk_train_result result;
    assert_int_equal(lk_trainer_add(trainer, callback), LK_OK);
    if (lk_trainer_fit(trainer, &result) != LK_OK)
        fail_msg("%s", lk_error_message());
    lk_trainer_release(trainer);
}

typedef struct terminal {
    int master;
    FILE *stream;
    char text[8192]; /* everything printed; valid once the terminal is closed */
} terminal;

static void open_terminal(terminal *t, int rows, int columns)
{
    t->master = posix_openpt(O_RDWR | O_NOCTTY);
    int slave = -1;
    if (t->master >= 0 && grantpt(t->master) == 0 && unlockpt(t->master) == 0)
        slave = open(ptsname(t->master), O_RDWR | O_NOCTTY);
    if (slave < 0) {
        print_message("SKIP: there are no pseudo-terminals here\n");
        skip();
    }
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    setenv("LC_ALL", "C", 1);
    t->stream = fdopen(slave, "w");
    assert_non_null(t->stream);
}

/* The output must fit into the terminal's buffer. */
static void close_terminal(terminal *t)
{
    ssize_t length = 0, got;
    fcntl(t->master, F_SETFL, O_NONBLOCK);
    while ((got = read(t->master, t->text + length, sizeof t->text - 1 - (size_t)length)) > 0)
        length += got;
    t->text[length] = '\0';
    fclose(t->stream);
    close(t->master);
}

/* A bar on a terminal, and a trainer of its training. */
typedef struct drawn_bar {
    terminal t;
    lk_callback callback;
    lk_trainer *trainer;
} drawn_bar;

static void open_bar(drawn_bar *b, int columns)
{
    open_terminal(&b->t, 24, columns);
    b->callback = lk_callback_progress_bar(b->t.stream);
    b->trainer = three_epochs();
}

static void bar_step(const drawn_bar *b, const lk_step_report *report)
{
    bool stop = false;
    assert_int_equal(b->callback.step_end(b->callback.self, b->trainer, report, &stop), LK_OK);
}

static void close_bar(drawn_bar *b)
{
    b->callback.release(b->callback.self);
    lk_trainer_release(b->trainer);
    close_terminal(&b->t);
}

static int count_text(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

static void a_live_plot_is_redrawn_in_place(void **state)
{
    (void)state;
    terminal t;
    open_terminal(&t, 12, 31); /* eight lines */
    train_with(lk_callback_live_plot(t.stream));
    close_terminal(&t);
    /* Drawn when the second and third epochs begin and at the end, erased when they end. */
    assert_int_equal(count_text(t.text, "\033[8A\033[J"), EPOCHS - 1);
    assert_int_equal(count_text(t.text, "\n"), 8 * EPOCHS);
}

static void a_bar_is_drawn_in_one_line(void **state)
{
    (void)state;
    terminal t;
    open_terminal(&t, 24, 100);
    train_with(lk_callback_progress_bar(t.stream));
    close_terminal(&t);
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        char full[64];
        snprintf(full, sizeof full, "\r\033[Kepoch %d/%d [########################] %d/%d  loss ", epoch, EPOCHS, STEPS,
                 STEPS);
        assert_int_equal(count_text(t.text, full), 1);
    }
    assert_int_equal(count_text(t.text, "\n"), 0);
    assert_int_equal(strcmp(t.text + strlen(t.text) - 4, "\r\033[K"), 0); /* the bar is gone */
}

static void a_bar_is_as_wide_as_the_terminal(void **state)
{
    (void)state;
    static const struct {
        int columns;
        const char *holds, *lacks;
    } cases[] = {{70, "/3 [", "########################"}, {50, "ETA", "["}, {20, "epoch 3/3", "0.5000"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        drawn_bar b;
        open_bar(&b, cases[i].columns);
        const lk_step_report report = {
            .epoch = 3, .step = 3, .steps = 3, .samples = 24, .seconds = 1, .so_far.loss = {12, 24}};
        bar_step(&b, &report);
        close_bar(&b);
        char *bar_text = b.t.text + 4, *end = strstr(bar_text, "\r\033[K"); /* cleared when the callback is released */
        assert_int_equal(strncmp(b.t.text, "\r\033[K", 4), 0);
        assert_non_null(end);
        assert_int_equal(strlen(end), 4);
        *end = '\0';
        assert_true(strlen(bar_text) < (size_t)cases[i].columns);
        assert_non_null(strstr(bar_text, cases[i].holds));
        assert_null(strstr(bar_text, cases[i].lacks));
    }
}

/* Updates ten times a second, and at the last step of an epoch. */
static void a_bar_is_drawn_now_and_then(void **state)
{
    (void)state;
    drawn_bar b;
    open_bar(&b, 100);
    for (int step = 1; step <= 50; step++) {
        lk_step_report report = {.epoch = 1,
                                 .step = step,
                                 .steps = 50,
                                 .samples = step,
                                 .seconds = 0.01 * step,
                                 .so_far.loss = {step, step}};
        bar_step(&b, &report);
    }
    close_bar(&b);
    assert_in_range(count_text(b.t.text, "epoch 1/3"), 4, 6);
    assert_int_equal(count_text(b.t.text, " 50/50 "), 1);
}

/* 24 samples an epoch, half of them in skipped steps, which take time too. */
static void a_bar_counts_skipped_steps(void **state)
{
    (void)state;
    drawn_bar b;
    open_bar(&b, 100);
    lk_step_report report = {.epoch = 1, .step = 2, .steps = 3, .samples = 16, .seconds = 8, .so_far.loss = {4, 8}};
    bar_step(&b, &report);
    report.so_far.loss = (lk_mean){0};
    report.seconds = 16;
    bar_step(&b, &report);
    close_bar(&b);
    assert_non_null(strstr(b.t.text, "] 2/3  loss 0.5000  2 images/s  ETA 0:28"));
    assert_non_null(strstr(b.t.text, "] 2/3  1 images/s  ETA 0:56"));
    assert_null(strstr(b.t.text, "nan"));
}

static void a_bar_of_an_evaluation(void **state)
{
    (void)state;
    drawn_bar b;
    open_bar(&b, 100);
    for (int step = 1; step <= 6; step++) {
        const lk_eval_report report = {.epoch = 2, .step = step, .steps = 6, .seconds = step};
        assert_int_equal(b.callback.eval_step(b.callback.self, b.trainer, &report), LK_OK);
    }
    close_bar(&b);
    for (int step = 1; step <= 5; step++) {
        char drawn[128];
        snprintf(drawn, sizeof drawn, "\r\033[Kepoch 2/3 evaluation [%.*s%.*s] %d/6", 4 * step,
                 "########################", 24 - 4 * step, "........................", step);
        assert_int_equal(count_text(b.t.text, drawn), 1);
    }
    assert_int_equal(count_text(b.t.text, "evaluation"), 5); /* the last step clears it */
    assert_int_equal(count_text(b.t.text, "\r\033[K"), 6);
}

/* Prints a line a minute; nothing for a shorter pass. */
static void a_bar_is_lines_in_files(void **state)
{
    (void)state;
    char *printed;
    size_t size;
    FILE *stream = open_memstream(&printed, &size);
    assert_non_null(stream);
    lk_callback bar = lk_callback_progress_bar(stream);
    lk_trainer *trainer = three_epochs();
    bool stop = false;
    for (int step = 1; step <= 12; step++) {
        lk_step_report report = {.epoch = 2, .step = step, .steps = 12, .samples = 2 * step, .seconds = 16 * step};
        report.so_far.loss = (lk_mean){step, 2 * step};
        assert_int_equal(bar.step_end(bar.self, trainer, &report, &stop), LK_OK);
    }
    for (int step = 1; step <= 5; step++) {
        const lk_eval_report report = {.epoch = 2, .step = step, .steps = 5, .seconds = 40 * step};
        assert_int_equal(bar.eval_step(bar.self, trainer, &report), LK_OK);
    }
    bar.release(bar.self);
    lk_trainer_release(trainer);
    fclose(stream);
    assert_string_equal(printed, "epoch 2/3  step 4/12  loss 0.5000  0 images/s  ETA 5:20\n"
                                 "epoch 2/3  step 8/12  loss 0.5000  0 images/s  ETA 4:16\n"
                                 "epoch 2/3  step 12/12  loss 0.5000  0 images/s  ETA 3:12\n"
                                 "epoch 2/3 evaluation 2/5\n"
                                 "epoch 2/3 evaluation 4/5\n");
    free(printed);
}

static void a_short_training_leaves_files_alone(void **state)
{
    (void)state;
    char *printed;
    size_t size;
    FILE *stream = open_memstream(&printed, &size);
    assert_non_null(stream);
    train_with(lk_callback_progress_bar(stream));
    fclose(stream);
    assert_string_equal(printed, "");
    free(printed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_live_plot_is_redrawn_in_place),  cmocka_unit_test(a_bar_is_drawn_in_one_line),
        cmocka_unit_test(a_bar_is_as_wide_as_the_terminal), cmocka_unit_test(a_bar_is_drawn_now_and_then),
        cmocka_unit_test(a_bar_counts_skipped_steps),       cmocka_unit_test(a_bar_of_an_evaluation),
        cmocka_unit_test(a_bar_is_lines_in_files),          cmocka_unit_test(a_short_training_leaves_files_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
