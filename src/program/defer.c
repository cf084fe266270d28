#include "program/defer.h"
#include "core/backend.h"
#include "core/products.h"
#include "program/program.h"
#include "program/values.h"

void lk__program_defer_products(lk_program *program)
{
    const lk_products *products = program->device->backend->products;
    for (int i = 0; i < program->n_out && products; i++) {
        const lk_value *value = lk__program_value(program, program->out[i]);
        lk_call *call = value ? &program->calls[value->first] : NULL;
        if (!value || value->first != value->last || !products->takes(call))
            continue;
        call->free_layout = true;
        value->storage->free_layout = value->storage->is_product = true;
    }
}
