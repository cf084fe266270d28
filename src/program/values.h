/* Values: the storages that a program's calls use, numbered in the order of their first use, and how long each is
 * needed. */
#pragma once

#include "program/program.h"

/* Returns whether one of the n tensors lies in the storage. Tensors may be NULL. */
bool lk__lists_storage(lk_tensor *const *tensors, int n, const lk_storage *storage);

/* Returns whether a and b may share elements: only dense parts of one storage that lie apart surely do not. */
bool lk__tensors_may_overlap(const lk_tensor *a, const lk_tensor *b);

/* Gives the tensors' storages numbers. Tensors may be NULL. */
lk_status lk__number_tensors(lk_numbers *numbers, lk_tensor *const *tensors, int n);

/* Gives every storage that calls use a number. */
lk_status lk__program_number(const lk_program *program, lk_numbers *numbers);

/* Finds the values of the program's present calls, replacing those found before. */
lk_status lk__program_find_values(lk_program *program);

/* Returns the value of a tensor's storage; NULL: none, or `tensor` is NULL. */
lk_value *lk__program_value(const lk_program *program, const lk_tensor *tensor);
