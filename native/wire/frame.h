/* Frames and handshake of the data plane (specs/WIRE.md). Little-endian hosts only: structs are the bytes on
 * the wire. */
#pragma once
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire structs assume a little-endian machine"
#endif

#ifdef __cplusplus
#define GF_STATIC_ASSERT static_assert
#else
#define GF_STATIC_ASSERT _Static_assert
#endif

#define GF_PROTOCOL_VERSION    1
#define GF_MAGIC               "GPUFERRY"
#define GF_FRAME_MAX           (16u << 20)
#define GF_HANDSHAKE_FRAME_MAX (64u << 10)
#define GF_CHUNK               (4u << 20)
#define GF_ATTRIBUTE_COUNT     256
#define GF_LIMIT_COUNT         8
#define GF_NONCE_SIZE          32
#define GF_HASH_SIZE           32
#define GF_TICKET_MAX          256
#define GF_PROOF_GUEST         "gpuferry guest 1"
#define GF_PROOF_SERVER        "gpuferry server 1"
#define GF_KEY_RESUME          "gpuferry resume key 1"
#define GF_PROOF_RESUME        "gpuferry resume 1"
#define GF_PROOF_RESUMED       "gpuferry resumed 1"
#define GF_PROOF_MOVED         "gpuferry moved 1"
#define GF_KEY_MOVED           "gpuferry moved key 1"

/* Of a session that can be resumed: who received this much more than he said says so. */
#define GF_ACKNOWLEDGE_EVERY (256u << 10)
/* Of a session that can be resumed: what a guest may leave unacknowledged before it loses its session. */
#define GF_UNACKNOWLEDGED_MAX (192u << 20)

enum gf_handshake_op {
    GF_OP_GREETING = 0xFF01,
    GF_OP_HELLO = 0xFF02,
    GF_OP_WELCOME = 0xFF03,
    GF_OP_REFUSED = 0xFF04,
    GF_OP_OUTPUT = 0xFF05, /* what a kernel printed; the guest writes the body to its standard output */
    GF_OP_REDIRECT = 0xFF06,
    GF_OP_QUEUED = 0xFF07,
    GF_OP_RESUMED = 0xFF08,
    GF_OP_ACKNOWLEDGE = 0xFF09, /* body: u64, how many bytes of the other's stream were received */
    GF_OP_RESUME = 0xFF0A,      /* in place of HELLO */
    GF_OP_MOVED = 0xFF0B,       /* the session is elsewhere; the guest's answer has no body */
};

enum gf_frame_flag {
    GF_FLAG_REPLY = 1,
};

enum gf_refusal {
    GF_REFUSED_VERSION = 1,
    GF_REFUSED_SPEC = 2,
    GF_REFUSED_DENIED = 3,
    GF_REFUSED_NO_CAPACITY = 4,
    GF_REFUSED_BAD_REQUEST = 5,
    GF_REFUSED_SHUTTING_DOWN = 6,
    GF_REFUSED_MALFORMED = 7,
    GF_REFUSED_NO_SESSION = 9, /* RESUME: there is no such session (any more) */
};

enum gf_extension_kind {
    GF_EXTENSION_TICKET = 1,
    GF_EXTENSION_LABELS = 2,
    GF_EXTENSION_MAX_WAIT = 3,   /* uint32_t milliseconds in the queue, at most */
    GF_EXTENSION_WALL_LIMIT = 4, /* uint32_t seconds; so is the next */
    GF_EXTENSION_IDLE_LIMIT = 5,
};

enum gf_hello_flag {
    GF_HELLO_RESUMABLE = 1, /* the session shall outlive its connection */
};

enum gf_image_kind {
    GF_IMAGE_PTX = 1,
    GF_IMAGE_SASS = 2,
};

#pragma pack(push, 1)

struct gf_header {
    uint32_t size;
    uint16_t op;
    uint16_t flags;
    uint32_t request; /* 0: no answer is wanted */
    union {
        uint32_t context; /* in a request */
        int32_t status;   /* in a reply: the CUresult */
    };
};

struct gf_reply_prefix {
    int32_t latched;
    uint16_t latched_op;
    uint16_t reserved;
};

struct gf_greeting {
    char magic[8];
    uint16_t version;
    uint16_t reserved;
    uint8_t nonce[GF_NONCE_SIZE];
};

struct gf_hello {
    uint16_t version;
    uint16_t flags; /* enum gf_hello_flag */
    uint8_t spec_hash[GF_HASH_SIZE];
    uint8_t nonce[GF_NONCE_SIZE];
    uint32_t pid;
    uint64_t memory; /* bytes of device memory asked for; 0: the monitor's default */
    uint32_t devices;
    char tenant[64]; /* text fields are NUL-padded, not necessarily NUL-terminated */
    char function[64];
    char program[128];
    uint8_t proof[GF_HASH_SIZE];
};

/* After the HELLO, any number of times: this, then `size` bytes. */
struct gf_extension {
    uint16_t kind;
    uint16_t size;
};

struct gf_redirect {
    uint8_t proof[GF_HASH_SIZE];
    uint8_t key[GF_HASH_SIZE]; /* the ticket's session key, masked */
    uint16_t ticket_size;
    uint16_t address_size;
    /* the ticket, the address */
};

struct gf_welcome {
    uint8_t proof[GF_HASH_SIZE];
    uint64_t session;
    uint64_t window_base;
    uint64_t window_size;
    uint64_t quota;
    uint32_t granularity;
    uint32_t driver_version;
    uint32_t device_count;
    uint32_t image_kinds; /* enum gf_image_kind, or-ed */
    uint32_t image_hash_count;
    uint32_t resume_ms; /* how long a lost connection may be resumed; 0: it may not */
    /* device_count * struct gf_device, image_hash_count * uint8_t[GF_HASH_SIZE] */
};

struct gf_resume {
    uint16_t version;
    uint16_t flags; /* a guest's are 0 */
    uint8_t nonce[GF_NONCE_SIZE];
    uint64_t session;
    uint64_t received; /* bytes after WELCOME, on all connections of the session */
    uint8_t proof[GF_HASH_SIZE];
};

struct gf_resumed {
    uint8_t proof[GF_HASH_SIZE];
    uint64_t received;
};

struct gf_moved {
    uint8_t proof[GF_HASH_SIZE];
    uint8_t nonce[GF_HASH_SIZE];
    uint8_t key[GF_HASH_SIZE]; /* the session's new one, masked */
    uint64_t session;          /* its new number */
    uint16_t address_size;
    /* the address */
};

struct gf_device {
    char name[256];
    uint8_t uuid[16];
    uint64_t total_memory;
    int32_t stream_priority_least;
    int32_t stream_priority_greatest;
    uint32_t attribute_count; /* GF_ATTRIBUTE_COUNT */
    int32_t attributes[GF_ATTRIBUTE_COUNT];
    int64_t limits[GF_LIMIT_COUNT]; /* -1: not available on this device */
};

/* Any number of them between HELLO and its answer. */
struct gf_queued {
    uint32_t position; /* from 1 */
    uint32_t length;   /* of the queue */
};

struct gf_refused {
    uint32_t reason;
    uint32_t cuda_error;
    /* text to the end of the frame */
};

/* One kernel of the table in the reply to sessionLoadImage: this, param_count * struct gf_kernel_param, then
 * the name, padded with zeroes to a multiple of 4. */
#define GF_FUNCTION_ATTRIBUTE_COUNT 18
struct gf_kernel {
    uint16_t name_size; /* without padding, no NUL */
    uint16_t param_count;
    int32_t attributes[GF_FUNCTION_ATTRIBUTE_COUNT]; /* indexed by CUfunction_attribute */
};

struct gf_kernel_param {
    uint32_t offset;
    uint32_t size;
};

/* An image that the driver has to link: this, count * uint64_t offsets from its start, the fatbin containers
 * (aligned to 8). */
#define GF_LINK_SET_MAGIC 0x4b4c4647u /* "GFLK" */
struct gf_link_set {
    uint32_t magic;
    uint32_t count;
};

/* One attribute of a launch, after the kernel parameters. */
struct gf_launch_attribute {
    uint32_t id; /* CUlaunchAttributeID */
    uint32_t reserved;
    uint8_t value[64]; /* CUlaunchAttributeValue, handles in it are the guest's */
};

#pragma pack(pop)

GF_STATIC_ASSERT(sizeof(struct gf_header) == 16, "WIRE.md 1");
GF_STATIC_ASSERT(sizeof(struct gf_hello) == 372, "WIRE.md 2");
GF_STATIC_ASSERT(sizeof(struct gf_resume) == 84, "WIRE.md 9");
