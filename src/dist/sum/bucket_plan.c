#include "dist/sum/bucket_plan.h"

#include "base/minmax.h"
#include "dist/sum/tree.h"

static int64_t bucket_plan_full(int64_t left, int64_t full, bool tapers)
{
    int64_t whole = LK_SMALL_QUANTITY * (int64_t)sizeof(float);
    return tapers && left > whole ? lk__min(full, left - left / 4) : full;
}

int lk__bucket_plan(const int64_t *bytes, int n, int64_t full, bool tapers, int *buckets)
{
    int bucket = 0;
    int64_t left = 0, in_bucket = 0;
    for (int i = 0; i < n; i++)
        left += bytes[i];
    int64_t enough = bucket_plan_full(left, full, tapers);
    for (int i = n - 1; i >= 0; i--) {
        buckets[i] = bucket;
        in_bucket += bytes[i];
        left -= bytes[i];
        if (in_bucket < enough || i == 0)
            continue;
        bucket++;
        in_bucket = 0;
        enough = bucket_plan_full(left, full, tapers);
    }
    return n > 0 ? bucket + 1 : 0;
}
