/* Checks and pixels of contact sheets, for those in files and those in terminals. */
#pragma once

#include "lockstep/plot.h"

/* Errors: LK_ERR_ARGUMENT. */
lk_status lk__contact_sheet_check(const lk_contact_sheet *sheet);

/* The values that become 0 and 255: those of the sheet, or for f32 images without a range the least and greatest. */
void lk__contact_sheet_range(const lk_contact_sheet *sheet, double *black, double *white);

/* Converts image `index` to bytes rgb [height,width,3]. Pixels that are not finite become magenta. */
void lk__contact_sheet_convert(const lk_contact_sheet *sheet, int64_t index, double black, double white,
                               unsigned char *rgb);
