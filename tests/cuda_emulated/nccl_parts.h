/* What ranks ask for in a group, and how it is done once all ranks' streams have come there. */
#ifndef LK_CUDA_EMULATED_NCCL_PARTS_H
#define LK_CUDA_EMULATED_NCCL_PARTS_H

#include <cstddef>
#include <map>
#include <string>
#include <vector>

struct operation {
    enum kinds { SEND, RECEIVE, GATHER, REDUCE } kind;
    const float *x; /* where something is sent */
    float *y;       /* where something is received; NULL: in another process */
    size_t count;
    int peer;
};

/* By rank. */
typedef std::map<int, std::vector<operation>> requests;

/* For another process: what these ranks ask for, with the elements that they send. */
std::string pack_part(const requests &asked);

/* Adds what such a text holds; elements stay where they are in it. Gives the number of ranks in it. */
int unpack_part(const std::string &part, requests *asked);

/* Moves, and adds up, what is written here. Ends the process where ranks do not ask for what fits together. */
void carry_out(const requests &asked);

#endif
