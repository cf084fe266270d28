/* What sheets of images have in common, whatever they are drawn on. */
#ifndef LK_IO_CONTACT_SHEET_H
#define LK_IO_CONTACT_SHEET_H

#include "lockstep/plot.h"

lk_status lk__contact_sheet_check(const lk_contact_sheet *sheet);

/* The values that become 0 and 255. */
void lk__contact_sheet_range(const lk_contact_sheet *sheet, double *black, double *white);

/* Image `index` as bytes rgb [height,width,3]. */
void lk__contact_sheet_convert(const lk_contact_sheet *sheet, int64_t index, double black, double white,
                               unsigned char *rgb);

#endif
