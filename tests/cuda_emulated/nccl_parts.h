/* The operations that ranks ask for in a group, and their execution when all ranks' streams have reached it. */
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

struct operation {
    enum kinds { SEND, RECEIVE, GATHER, REDUCE } kind;
    const float *x; /* source, if the operation sends */
    float *y;       /* destination, if it receives; NULL: in another process */
    size_t count;
    int peer;
};

/* By rank. */
typedef std::map<int, std::vector<operation>> requests;

/* Packs the operations of these ranks for another process, with the elements that they send. */
std::string pack_part(const requests &asked);

/* Adds the operations of a packed text, which must outlive them, because they point into it. Returns the number of
 * ranks in it. */
int unpack_part(const std::string &part, requests *asked);

/* Carries out the operations whose destination is in this process. Aborts if the ranks' operations do not match. */
void carry_out(const requests &asked);
