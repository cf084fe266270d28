#include "fuzz_post.h"

#include "base/clock.h"
#include "dist/service/requests.h"
#include "train/parameter_server/ps_protocol.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MOST_MESSAGES = 64, PEERS = 8, MOST_INPUT = 1 << 16 };

/* A message of the input. The first frame comes at bytes[begin]. */
typedef struct letter {
    size_t begin;
    uint8_t to, flags, kind, number, n;
    bool is_taken;
} letter;

typedef struct parcel {
    lk_mail mail; /* first */
    void *memory[LK_MAX_FRAMES];
} parcel;

struct lk_post {
    int unused;
};

struct lk_service {
    int unused;
};

struct lk_peer {
    int place;
    uint64_t asked; /* number of the last request */
};

static struct {
    const uint8_t *bytes;
    size_t size;
    letter letters[MOST_MESSAGES];
    int n, peers, naps;
    pthread_t thread;
    void (*on_dry)(void *user);
    void *user;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const char *text; /* NULL: none is replaced */
    lk_frame replacement;
    /* For each place: the main thread has asked there, or another thread has and found nothing. */
    bool is_of_main[PEERS], is_dry[PEERS];
    atomic_int_least64_t now;
} office = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* --- the clock ---------------------------------------------------------------------------------------------------- */

int64_t lk__nanoseconds(void)
{
    return atomic_fetch_add(&office.now, 1000);
}

double lk__seconds(void)
{
    return (double)lk__nanoseconds() * 1e-9;
}

static void office_let_pass(int64_t milliseconds)
{
    atomic_fetch_add(&office.now, milliseconds * 1000000);
}

/* Waits in place of the C library's function, which the parameter server calls between two looks. A main thread that
 * only sleeps waits for something that no message will bring. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
    enum { MOST_NAPS = 1000 };
    (void)left;
    office_let_pass(time->tv_sec * 1000 + time->tv_nsec / 1000000);
    if (pthread_equal(office.thread, pthread_self()) && ++office.naps > MOST_NAPS && office.on_dry)
        office.on_dry(office.user);
    return 0;
}

/* Threads other than the main one only wait for the main one to end them. */
static void office_nap(void)
{
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 50000}, NULL);
}

/* --- the input ---------------------------------------------------------------------------------------------------- */

static size_t letter_body(int kind)
{
    switch (kind) {
    case LK_PS_SEAT:
    case LK_PS_JOIN:
        return sizeof(lk_ps_join);
    case LK_PS_SEATED:
        return sizeof(lk_ps_seated);
    case LK_PS_WELCOME:
        return sizeof(lk_ps_welcome);
    case LK_PS_SETUP:
        return sizeof(lk_ps_setup);
    case LK_PS_BEAT:
        return sizeof(lk_ps_beat);
    case LK_PS_PULSE:
        return sizeof(lk_ps_pulse);
    case LK_PS_SERVERS:
        return sizeof(lk_ps_servers);
    case LK_PS_WORK:
        return sizeof(lk_ps_work);
    case LK_PS_TASK:
        return sizeof(lk_ps_task);
    case LK_PS_ASK:
    case LK_PS_LEAVE:
    case LK_PS_FAREWELL:
        return sizeof(lk_ps_ask);
    case LK_PS_ANSWER:
        return sizeof(lk_ps_answer);
    case LK_PS_PULL:
        return sizeof(lk_ps_pull);
    case LK_PS_VARIABLES:
        return sizeof(lk_ps_variables);
    case LK_PS_PUSH:
        return sizeof(lk_ps_push);
    case LK_PS_PUSHED:
        return sizeof(lk_ps_pushed);
    default:
        return sizeof(lk_ps_empty);
    }
}

static size_t office_number16(const uint8_t *bytes)
{
    return (size_t)bytes[0] | (size_t)bytes[1] << 8;
}

/* The end of a frame that begins at `at`; 0: the input ends before it. */
static size_t office_frame_end(const uint8_t *bytes, size_t size, size_t at)
{
    if (size - at < 4 || size - at - 4 < office_number16(bytes + at))
        return 0;
    return at + 4 + office_number16(bytes + at);
}

/* The end of a message that begins at `at`; 0: the input ends before it. */
static size_t office_letter_end(const uint8_t *bytes, size_t size, size_t at)
{
    if (size - at < 5)
        return 0;
    size_t end = at + 5;
    for (int i = 0; i < bytes[at + 4] && end; i++)
        end = office_frame_end(bytes, size, end);
    return end;
}

void fuzz_post_load(const uint8_t *data, size_t size, void (*on_dry)(void *user), void *user)
{
    office.bytes = data;
    office.size = size;
    office.n = 0;
    office.peers = office.naps = 0;
    memset(office.is_of_main, 0, sizeof office.is_of_main);
    memset(office.is_dry, 0, sizeof office.is_dry);
    office.thread = pthread_self();
    office.on_dry = on_dry;
    office.user = user;
    office.text = NULL;
    atomic_store(&office.now, INT64_C(1000000000));
    for (size_t at = 0, end; office.n < MOST_MESSAGES && (end = office_letter_end(data, size, at)); at = end)
        office.letters[office.n++] = (letter){.begin = at + 5,
                                              .to = data[at] == FUZZ_WAIT ? 0 : data[at] % PEERS,
                                              .flags = data[at] == FUZZ_WAIT ? FUZZ_WAIT : data[at + 1] & 3,
                                              .kind = data[at + 2],
                                              .number = data[at + 3],
                                              .n = data[at + 4] < LK_MAX_FRAMES ? data[at + 4] : LK_MAX_FRAMES};
}

void fuzz_post_replace(const char *text, const void *data, size_t bytes)
{
    office.text = text;
    office.replacement = (lk_frame){data, bytes};
}

void fuzz_post_wait_until_dry(void)
{
    pthread_mutex_lock(&office.mutex);
    while (!office.is_dry[0])
        pthread_cond_wait(&office.changed, &office.mutex);
    pthread_mutex_unlock(&office.mutex);
}

/* --- delivery ----------------------------------------------------------------------------------------------------- */

static uint8_t *frame_new(parcel *p, size_t size)
{
    uint8_t *memory = calloc(size ? size : 1, 1);
    FUZZ_CHECK(memory);
    p->memory[p->mail.n] = memory;
    p->mail.frames[p->mail.n++] = (lk_frame){memory, size};
    return memory;
}

static bool office_is_replaced(const uint8_t *bytes, size_t n)
{
    return office.text && strlen(office.text) == n && memcmp(bytes, office.text, n) == 0;
}

/* number: of the request that a peer waits for. */
static lk_mail *letter_open(const letter *l, uint64_t number)
{
    parcel *p = calloc(1, sizeof *p);
    FUZZ_CHECK(p);
    size_t at = l->begin;
    lk_wire_header header = {LK_WIRE_MAGIC, LK_WIRE_VERSION, l->kind,
                             l->to == 0 || l->flags & FUZZ_OWN_NUMBER ? l->number : number};
    for (int i = 0; i < l->n; i++) {
        size_t given = office_number16(office.bytes + at), size = office_number16(office.bytes + at + 2), front = 0;
        if (i == 0 && !(l->flags & FUZZ_RAW)) {
            front = sizeof header;
            size = front + letter_body(l->kind);
        }
        const uint8_t *bytes = office.bytes + at + 4;
        at += 4 + given;
        if (office_is_replaced(bytes, given)) {
            memcpy(frame_new(p, office.replacement.bytes), office.replacement.data, office.replacement.bytes);
            continue;
        }
        uint8_t *memory = frame_new(p, size);
        if (front > 0)
            memcpy(memory, &header, front);
        memcpy(memory + front, bytes, given < size - front ? given : size - front);
    }
    return &p->mail;
}

/* Lets the thread of the last peer have all its messages before the main thread goes on, so that most inputs always
 * give the same run. It gives up after a moment: the peer may be the main thread's own. */
static void office_wait_for_last_peer(int place)
{
    struct timespec until;
    int last = office.peers, late = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 2000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    office.is_of_main[place] = true;
    while (last != place && !office.is_of_main[last] && !office.is_dry[last] && late == 0)
        late = pthread_cond_timedwait(&office.changed, &office.mutex, &until);
    office.is_of_main[last] |= late != 0;
}

/* The next message to a place; NULL: none is left, or time passes instead. */
static letter *office_take(int place, bool is_main)
{
    letter *found = NULL;
    pthread_mutex_lock(&office.mutex);
    if (is_main)
        office_wait_for_last_peer(place);
    for (int i = 0; i < office.n && !found; i++)
        if (!office.letters[i].is_taken && office.letters[i].to == place)
            found = &office.letters[i];
    if (found)
        found->is_taken = true;
    else
        office.is_dry[place] |= !is_main;
    pthread_cond_broadcast(&office.changed);
    pthread_mutex_unlock(&office.mutex);
    return found;
}

static lk_status office_receive(int place, uint64_t number, int milliseconds, lk_mail **mail)
{
    bool is_main = pthread_equal(office.thread, pthread_self());
    letter *l = office_take(place, is_main);
    *mail = l && l->flags != FUZZ_WAIT ? letter_open(l, number) : NULL;
    if (*mail)
        return LK_OK;
    if (l) {
        office_let_pass(100);
    } else if (is_main) {
        office_let_pass(milliseconds);
        office.on_dry(office.user);
    } else {
        office_nap();
    }
    return LK_OK;
}

/* --- dist/service/requests.h -------------------------------------------------------------------------------------- */

void lk__mail_release(lk_mail *mail)
{
    parcel *p = (parcel *)mail;
    for (int i = 0; p && i < p->mail.n; i++)
        free(p->memory[i]);
    free(p);
}

lk_status lk__post_open(const lk_keys *keys, lk_post **post)
{
    static lk_post one;
    (void)keys;
    *post = &one;
    return LK_OK;
}

void lk__post_release(lk_post *post)
{
    (void)post;
}

lk_status lk__keys_generate(char public_key[LK_KEY_TEXT], char secret_key[LK_KEY_TEXT])
{
    *public_key = *secret_key = '\0';
    return LK_OK;
}

lk_status lk__service_open(lk_post *post, const lk_address *address, lk_service **service)
{
    static lk_service one;
    (void)post, (void)address;
    *service = &one;
    return LK_OK;
}

void lk__service_release(lk_service *service)
{
    (void)service;
}

int lk__service_port(const lk_service *service)
{
    (void)service;
    return 1;
}

lk_status lk__service_receive(lk_service *service, int milliseconds, lk_mail **mail)
{
    (void)service;
    return office_receive(0, 0, milliseconds, mail);
}

static void office_check_sent(const lk_frame *frames, int n)
{
    lk_wire_header header;
    FUZZ_CHECK(n >= 1 && n <= LK_MAX_FRAMES && frames[0].bytes >= sizeof header);
    memcpy(&header, frames[0].data, sizeof header);
    FUZZ_CHECK(header.magic == LK_WIRE_MAGIC && frames[0].bytes == sizeof header + letter_body(header.kind));
    for (int i = 0; i < n; i++)
        fuzz_touch(frames[i].data, frames[i].bytes);
}

lk_status lk__service_reply(lk_service *service, const lk_mail *request, const lk_frame *frames, int n)
{
    (void)service;
    FUZZ_CHECK(request);
    office_check_sent(frames, n);
    return LK_OK;
}

lk_status lk__peer_open(lk_post *post, const lk_address *address, const char *key, lk_peer **peer)
{
    (void)post, (void)address, (void)key;
    *peer = calloc(1, sizeof **peer);
    FUZZ_CHECK(*peer);
    pthread_mutex_lock(&office.mutex);
    (*peer)->place = office.peers < PEERS - 1 ? ++office.peers : office.peers;
    pthread_mutex_unlock(&office.mutex);
    return LK_OK;
}

void lk__peer_release(lk_peer *peer)
{
    free(peer);
}

lk_status lk__peer_send(lk_peer *peer, const lk_frame *frames, int n)
{
    lk_wire_header header;
    office_check_sent(frames, n);
    memcpy(&header, frames[0].data, sizeof header);
    peer->asked = header.number;
    return LK_OK;
}

lk_status lk__peer_receive(lk_peer *peer, int milliseconds, lk_mail **mail)
{
    return office_receive(peer->place, peer->asked, milliseconds, mail);
}

const char *lk__peer_refusal(lk_peer *peer)
{
    (void)peer;
    return NULL;
}

int lk__peer_losses(lk_peer *peer)
{
    (void)peer;
    return 0;
}

/* --- mutations ---------------------------------------------------------------------------------------------------- */

static uint64_t mutation_state;

/* splitmix64 */
static size_t mutation_draw(size_t below)
{
    uint64_t z = (mutation_state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (size_t)((z ^ (z >> 31)) % below);
}

/* Lists where messages begin; the last entry is where they end. */
static int mutation_list(const uint8_t *data, size_t size, size_t begins[MOST_MESSAGES + 1])
{
    int n = 0;
    size_t at = 0;
    for (size_t end; n < MOST_MESSAGES && (end = office_letter_end(data, size, at)); at = end)
        begins[n++] = at;
    begins[n] = at;
    return n;
}

/* Copies message [from, end) to `to`, a place between messages. */
static size_t mutation_insert(uint8_t *data, size_t size, size_t most, size_t from, size_t end, size_t to)
{
    uint8_t copy[MOST_INPUT];
    size_t n = end - from;
    if (n > sizeof copy || size + n > most)
        return size;
    memcpy(copy, data + from, n);
    memmove(data + to + n, data + to, size - to);
    memcpy(data + to, copy, n);
    return size + n;
}

static size_t mutation_remove(uint8_t *data, size_t size, size_t from, size_t end)
{
    memmove(data + from, data + end, size - end);
    return size - (end - from);
}

/* Changes the bytes of one frame, most often a number at one of the places where structures have them. */
static void mutation_change_frame(uint8_t *data, size_t begin)
{
    static const int64_t edges[] = {0, 1, -1, 2, 3, 4, 8, 77, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1 << 20};
    size_t at = begin + 5;
    for (size_t skip = data[begin + 4] ? mutation_draw(data[begin + 4]) : 0; skip > 0; skip--)
        at += 4 + office_number16(data + at);
    size_t given = data[begin + 4] ? office_number16(data + at) : 0;
    if (given == 0)
        return;
    uint8_t *bytes = data + at + 4;
    size_t width = mutation_draw(2) ? 4 : 8, place = mutation_draw(given) & ~(width - 1);
    if (mutation_draw(2) || place + width > given) {
        LLVMFuzzerMutate(bytes, given, given);
        return;
    }
    int64_t number;
    if (mutation_draw(2)) {
        number = edges[mutation_draw(sizeof edges / sizeof *edges)];
    } else {
        number = 0;
        memcpy(&number, bytes + place, width);
        number = (int64_t)((uint64_t)number + mutation_draw(9) - 4);
    }
    memcpy(bytes + place, &number, width);
}

/* Gives the first frame more bytes, zeros at first. */
static size_t mutation_grow_frame(uint8_t *data, size_t size, size_t most, size_t begin)
{
    size_t more = 8 * (1 + mutation_draw(16)), end = office_frame_end(data, size, begin + 5);
    size_t given = data[begin + 4] ? office_number16(data + begin + 5) : UINT16_MAX;
    if (given + more > UINT16_MAX || size + more > most)
        return size;
    memmove(data + end + more, data + end, size - end);
    memset(data + end, 0, more);
    data[begin + 5] = (uint8_t)(given + more);
    data[begin + 6] = (uint8_t)((given + more) >> 8);
    return size + more;
}

/* Keeps messages whole in most mutations. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    size_t begins[MOST_MESSAGES + 1];
    int n = mutation_list(data, size, begins);
    mutation_state = seed;
    if (n == 0 || mutation_draw(16) == 0)
        return LLVMFuzzerMutate(data, size, most);
    int i = (int)mutation_draw((size_t)n), to = (int)mutation_draw((size_t)n + 1);
    switch (mutation_draw(8)) {
    case 0:
        return mutation_insert(data, size, most, begins[i], begins[i + 1], begins[to]);
    case 1:
        return mutation_remove(data, size, begins[i], begins[i + 1]);
    case 2:
        data[begins[i] + mutation_draw(4)] = (uint8_t)mutation_draw(24);
        return size;
    case 3:
        return mutation_grow_frame(data, size, most, begins[i]);
    default:
        mutation_change_frame(data, begins[i]);
        return size;
    }
}
