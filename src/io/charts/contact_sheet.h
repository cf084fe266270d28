/* Checks contact sheets and converts their pixels, for sheets in files and in terminals. */
#pragma once

#include "lockstep/plot.h"

/* Errors: LK_ERR_ARGUMENT. */
lk_status lk__contact_sheet_check(const lk_contact_sheet *sheet);

/* Sets the values that become 0 and 255: those of the sheet, or, if it gives no range for f32 images, their least and
 * greatest value. */
void lk__contact_sheet_range(const lk_contact_sheet *sheet, double *black, double *white);

/* Converts image `index` to bytes rgb [height,width,3]. Pixels that are not finite become magenta. */
void lk__contact_sheet_convert(const lk_contact_sheet *sheet, int64_t index, double black, double white,
                               unsigned char *rgb);
