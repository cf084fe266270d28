/* Asynchronous computation: operators return at once and run on the device's thread; only reading an element waits. */
#include <lockstep/lockstep.h>

/* A parameter with a gradient attached, before and after a backward pass. */
static void show_gradient(lk_device *device)
{
    lk_tensor *x = lk_tensor_from(device, LK_F32, LK_SHAPE(2, 2), (float[]){1, 2, 3, 4}),
              *w = lk_zeros(device, LK_F32, LK_SHAPE(2, 1));
    lk_tensor_attach_grad(w);
    printf("weight:\n");
    lk_tensor_show(w, stdout);
    printf("gradient:\n");
    lk_tensor_show(lk_tensor_grad(w), stdout);

    lk_tape *tape = lk_tape_begin(&w, 1);
    lk_tensor *loss = lk_sum(lk_matmul(x, w), NULL);
    lk_tape_backward(tape, loss); /* pushed, as operators are */
    lk_tape_release(tape);
    printf("gradient after backward:\n");
    lk_tensor_show(lk_tensor_grad(w), stdout);
}

int main(void)
{
    lk_device *cpu = lk_device_open("cpu");
    lk_scope_begin(); /* tensors made from here on are released by lk_scope_end */

    lk_tensor *a = lk_ones(cpu, LK_F32, LK_SHAPE(1, 2));
    lk_tensor *b = lk_ones(cpu, LK_F32, LK_SHAPE(1, 2));
    lk_tensor *c = lk_add_scalar(lk_mul(a, b), 2); /* c = a * b + 2: pushed, perhaps not yet computed */
    lk_tensor_print(c, stdout);                    /* waits for c */

    c = lk_mul(a, b);
    lk_tensor_wait(c); /* until c is computed */
    lk_tensor *d = lk_add_scalar(c, 2);
    lk_wait_all(); /* until everything is computed */
    lk_tensor_print(c, stdout);
    lk_tensor_print(d, stdout);

    show_gradient(cpu);

    lk_scope_end();
    lk_device_release(cpu);

    /* A NULL argument gives NULL and the first error is kept, so one check at the end is enough. */
    if (lk_error_status() != LK_OK) {
        fprintf(stderr, "async_tensors: %s\n", lk_error_message());
        return 1;
    }
    return 0;
}
