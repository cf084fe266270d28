/* What is drawn in place on a terminal, and not at all elsewhere. */
#include "lockstep/callbacks.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

enum { EPOCHS = 3, STEPS = 3 };

static lk_trainer *new_trainer(void)
{
    lk_train_config config;
    lk_error_clear();
    assert_int_equal(lk_train_defaults(NULL, &config), LK_OK);
    config.data = "synthetic";
    config.limit_train = 8 * STEPS;
    config.limit_val = 10;
    config.batch_size = 8;
    config.epochs = EPOCHS;
    config.devices = "1";
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer)
        fail_msg("%s", lk_error_message());
    return trainer;
}

/* Takes the callback, or fails. */
static void train_with(lk_callback callback)
{
    lk_trainer *trainer = new_trainer();
    lk_train_result result;
    assert_int_equal(lk_trainer_add(trainer, callback), LK_OK);
    if (lk_trainer_fit(trainer, &result) != LK_OK)
        fail_msg("%s", lk_error_message());
    lk_trainer_release(trainer);
}

typedef struct terminal {
    int master;
    FILE *stream;
    char text[8192]; /* what was printed, once it is closed */
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

/* What was printed has to fit into the terminal's buffer. */
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
    /* Drawn when the second and third epochs begin and at the end, taken away when they end. */
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
    assert_int_equal(strcmp(t.text + strlen(t.text) - 4, "\r\033[K"), 0); /* nothing is left */
}

static void a_bar_is_as_wide_as_the_terminal(void **state)
{
    (void)state;
    static const struct {
        int columns;
        const char *holds, *lacks;
    } cases[] = {{70, "/3 [", "########################"}, {50, "ETA", "["}, {20, "epoch 3/3", "0.5000"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        terminal t;
        open_terminal(&t, 24, cases[i].columns);
        lk_callback bar = lk_callback_progress_bar(t.stream);
        lk_trainer *trainer = new_trainer();
        bool stop = false;
        assert_int_equal(bar.train_begin(bar.self, trainer), LK_OK);
        const lk_step_report report = {.epoch = 3, .step = 3, .steps = 3, .seconds = 1, .so_far.loss = {12, 24}};
        assert_int_equal(bar.step_end(bar.self, trainer, &report, &stop), LK_OK);
        bar.release(bar.self);
        lk_trainer_release(trainer);
        close_terminal(&t);
        assert_int_equal(strncmp(t.text, "\r\033[K", 4), 0);
        assert_true(strlen(t.text + 4) < (size_t)cases[i].columns);
        assert_non_null(strstr(t.text, cases[i].holds));
        assert_null(strstr(t.text + 4, cases[i].lacks));
    }
}

/* Ten times a second, the last step of an epoch always. */
static void a_bar_is_drawn_now_and_then(void **state)
{
    (void)state;
    terminal t;
    open_terminal(&t, 24, 100);
    lk_callback bar = lk_callback_progress_bar(t.stream);
    lk_trainer *trainer = new_trainer();
    bool stop = false;
    assert_int_equal(bar.train_begin(bar.self, trainer), LK_OK);
    for (int step = 1; step <= 50; step++) {
        lk_step_report report = {
            .epoch = 1, .step = step, .steps = 50, .seconds = 0.01 * step, .so_far.loss = {step, step}};
        assert_int_equal(bar.step_end(bar.self, trainer, &report, &stop), LK_OK);
    }
    bar.release(bar.self);
    lk_trainer_release(trainer);
    close_terminal(&t);
    assert_in_range(count_text(t.text, "epoch 1/3"), 4, 6);
    assert_int_equal(count_text(t.text, " 50/50 "), 1);
}

static void a_bar_stays_out_of_files(void **state)
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
        cmocka_unit_test(a_bar_stays_out_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
