/* planq for C and C++: every operator by one set of functions, without Python.
 *
 * An operation is a descriptor, in JSON as `desc.to_json()` of the Python package writes it. A plan
 * is a descriptor with the kernel that was chosen for it; it says beforehand what it needs and what
 * it promises. The caller owns the operands, the workspace and the stream. docs/c.md has an
 * example. planq.hpp has the same for C++17, with lifetimes and exceptions.
 *
 * Every function that answers a planq_code can be called from any thread at any time. It throws
 * nothing, prints nothing and exits nowhere. PLANQ_OK is 0; after any other code planq_last_error()
 * is a sentence, and results that the function would have written are as they were before.
 *
 * Texts that come back go into the caller's buffer. `size` is set to the bytes of the text with its
 * final zero, also where the buffer is too small: then the code is PLANQ_ERROR_BUFFER and nothing
 * is written into it. So `f(..., NULL, 0, &size)` asks how many there are. `size` may be NULL.
 */
#ifndef PLANQ_H
#define PLANQ_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Errors ----------------------------------------------------------------------------------- */

/* What is wrong. planq_code_name() spells a code as `PlanqError.code` of the Python package does.
 */
typedef int32_t planq_code;
enum {
  PLANQ_OK = 0,
  PLANQ_ERROR_DESCRIPTOR = 1, /* "descriptor": a descriptor or a preference that means nothing */
  PLANQ_ERROR_NO_KERNEL = 2,  /* "no_kernel": no kernel qualifies; the message says of each why */
  PLANQ_ERROR_ARGUMENT = 3,   /* "argument": an operand, or a null pointer where none may be */
  PLANQ_ERROR_WORKSPACE = 4,  /* "workspace": missing, too small, misaligned or overlapping */
  PLANQ_ERROR_STREAM = 5,     /* "stream": no stream, or another device's than the plan's */
  PLANQ_ERROR_PLAN_MISMATCH = 6, /* "plan_mismatch": a stored plan is not what is selected now */
  PLANQ_ERROR_CUDA = 7,          /* "cuda": the CUDA runtime refused */
  PLANQ_ERROR_HANDLE = 8,        /* "handle": no such plan or launch, or none any more */
  PLANQ_ERROR_BUFFER = 9,        /* "buffer": too small for the text */
  PLANQ_ERROR_MEMORY = 10,       /* "memory": the machine has none left */
  PLANQ_ERROR_INTERNAL = 11      /* "internal": a fault of planq's own */
};

/* The name of a code, such as "argument"; "unknown" for a number that is none. Never NULL. */
const char* planq_code_name(planq_code code);

/* The sentence of the call that failed last in this thread; "" where none did. Calls that succeed
 * leave it. It stays valid until the next call in this thread that fails. "None" in it is an
 * operand that was left out. */
const char* planq_last_error(void);

/* --- The build -------------------------------------------------------------------------------- */

/* Such as "0.1.0". */
const char* planq_version(void);

/* The digest of the sources that the library was built from, of both compilers and of what they
 * were told: part of every stored plan. */
const char* planq_build_id(void);

/* The digest of the sources alone: builds of the same sources share it. */
const char* planq_source_id(void);

/* Every operator in JSON: a list of {"name", "fields": [{"name", "kind", "required", "default",
 * "source", "members"}], "operands": [{"name", "role", "kind", "presence"}], "kernels": [...]}. */
planq_code planq_operators(char* buffer, size_t capacity, size_t* size);

/* --- Streams ---------------------------------------------------------------------------------- */

enum { PLANQ_HOST = 0, PLANQ_CUDA = 1 };

/* Where work goes. Made by the two functions below. */
typedef struct planq_stream {
  int32_t backend; /* PLANQ_HOST or PLANQ_CUDA */
  int32_t device;  /* of PLANQ_CUDA: the CUDA ordinal */
  int32_t threads; /* of PLANQ_HOST: 1 to 1024 */
  int32_t unused;  /* 0 */
  void* handle;    /* of PLANQ_CUDA: a cudaStream_t */
} planq_stream;

/* The calling thread and `threads` - 1 others: what runs on it has finished when the call returns.
 */
static inline planq_stream planq_host_stream(int32_t threads) {
  planq_stream stream = {PLANQ_HOST, 0, 0, 0, NULL};
  stream.threads = threads;
  return stream;
}

/* A cudaStream_t of a device. That it is of this device, and alive, is the caller's word. */
static inline planq_stream planq_cuda_stream(void* handle, int32_t device) {
  planq_stream stream = {PLANQ_CUDA, 0, 0, 0, NULL};
  stream.device = device;
  stream.handle = handle;
  return stream;
}

/* --- Operands --------------------------------------------------------------------------------- */

/* A tensor as DLPack describes it. Include dlpack/dlpack.h first, and it is DLPack's own DLTensor;
 * otherwise it is declared here, with the same layout. `strides` count elements; NULL: compact, in
 * C order. `dtype.code`: 0 integer, 1 unsigned, 2 IEEE, 4 bfloat, 6 bool, 10 float8_e4m3fn, 12
 * float8_e5m2, 14 float8_e8m0fnu; 4-bit codes are uint8, two a byte; `lanes` is 1. `device_type`: 1
 * host, 2 CUDA, 13 CUDA managed. */
#if defined(DLPACK_VERSION) || defined(DLPACK_MAJOR_VERSION)
typedef DLTensor planq_tensor;
#else
typedef struct planq_tensor {
  void* data;
  struct {
    int32_t device_type, device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} planq_tensor;
#endif

enum { PLANQ_TENSORS = 0, PLANQ_INT64 = 1, PLANQ_FLOAT64 = 2, PLANQ_BOOL = 3 };

/* No operator has more operands. */
enum { PLANQ_MOST_OPERANDS = 48 };

/* One operand of a call. Of PLANQ_TENSORS: `count` tensors at `tensors`, which is 1 unless the
 * operand is a list; an operand whose `tensors` is NULL, or that is not given at all, is absent. A
 * number by value has one of the other types. */
typedef struct planq_operand {
  const char* name; /* the field of the operator's args in Python, such as "input" */
  int32_t type;     /* PLANQ_TENSORS, or what `value` holds */
  int32_t unused;   /* 0 */
  planq_tensor* const* tensors;
  size_t count;
  union {
    int64_t integer; /* PLANQ_INT64; of PLANQ_BOOL 0 or 1 */
    double real;     /* PLANQ_FLOAT64 */
  } value;
} planq_operand;

/* --- Plans ------------------------------------------------------------------------------------ */

/* A plan or a bound launch: numbers, of which 0 is none. Both are counted: they begin with one
 * reference and end with the last. What ended is refused with PLANQ_ERROR_HANDLE, and no number
 * comes twice. A call that is under way keeps what it uses. */
typedef uint64_t planq_plan;
typedef uint64_t planq_launch;

/* Chooses and prepares a kernel for a descriptor on the stream's device; only the device of the
 * stream matters. `preference` is NULL for the defaults, or an object in JSON with any of these
 * keys. Each removes kernels; none is a hint. A key that is left out has its default.
 *
 *   key                    values                               default
 *   "determinism"          "not_guaranteed", "run_to_run",      "run_to_run"
 *                          "gpu_to_gpu", "bit_exact"
 *   "batch_invariant"      true, false                          false
 *   "max_ulp"              0 or more, null                      null: any
 *   "max_workspace_bytes"  0 or more, null                      null: any
 *   "backend"              "host", "cuda", null                 null: the stream's
 *   "sku"                  a text, null                         null: any
 *   "body"                 a text, null                         null: any
 *
 * - determinism: the least that a kernel may guarantee. The values stand from the weakest to the
 *   strongest; "bit_exact" is the same bits as the host, on every device.
 * - batch_invariant: true removes kernels whose result for a row depends on the rows beside it.
 * - max_ulp: the largest error against the host, in units in the last place, that a kernel may
 *   guarantee. A kernel that guarantees none in these units is removed.
 * - max_workspace_bytes: the most workspace that a kernel may need for the largest extents.
 * - backend: kernels of this backend alone. The other one than the stream's leaves none.
 * - sku: kernels of this SKU alone, such as "quantize/host/f32_s8".
 * - body: the kernel of a SKU that has this name, for tests and tuning.
 *
 * Errors: PLANQ_ERROR_DESCRIPTOR, PLANQ_ERROR_NO_KERNEL, PLANQ_ERROR_STREAM, PLANQ_ERROR_CUDA. */
planq_code planq_select(const planq_stream* stream, const char* descriptor, const char* preference,
                        planq_plan* plan);

/* What selection knows of a device. A device of this kind need not be present. */
typedef struct planq_device {
  int32_t backend; /* PLANQ_HOST or PLANQ_CUDA */
  int32_t index;   /* of PLANQ_CUDA: the CUDA ordinal */
  int32_t arch;    /* of PLANQ_CUDA: compute capability times ten, such as 90; 0 on the host */
  int32_t multiprocessors;
  size_t shared_memory_per_block; /* the opt-in maximum, in bytes */
  size_t l2_bytes;
  char name[256]; /* for messages; ends with a zero */
} planq_device;

/* The facts of a device that has a name: "host"; "sm_90" and other architectures from sm_80 on, of
 * which the largest GPU is meant, present or not; "cuda:0", which has to be present.
 * Errors: PLANQ_ERROR_DESCRIPTOR where no device has this name. */
planq_code planq_device_named(const char* name, planq_device* device);

/* Chooses a kernel as planq_select() does, for a device that need not be present. The plan says
 * everything of itself that others do, such as its SKU and its workspace. It runs nowhere: for
 * planq_can_implement(), planq_run() and planq_bind() it is PLANQ_ERROR_STREAM. What
 * planq_plan_to_json() records of it, planq_plan_from_json() takes where the device is present.
 * Errors: PLANQ_ERROR_DESCRIPTOR, PLANQ_ERROR_NO_KERNEL. */
planq_code planq_foresee(const planq_device* device, const char* descriptor, const char* preference,
                         planq_plan* plan);

/* Selects again what planq_plan_to_json(), or `plan.to_json()` in Python, recorded.
 * Errors: PLANQ_ERROR_PLAN_MISMATCH where the text is no plan, or anything of it is not what this
 * build and device select now; the message lists every difference. As planq_select() else. */
planq_code planq_plan_from_json(const planq_stream* stream, const char* text, planq_plan* plan);

/* One reference more, or one less; the last one ends the plan. Launches keep what they need of it.
 */
planq_code planq_plan_retain(planq_plan plan);
planq_code planq_plan_release(planq_plan plan);

/* The SKU that the plan keeps, such as "quantize/host/f32_s8". */
planq_code planq_plan_sku(planq_plan plan, char* buffer, size_t capacity, size_t* size);
/* The plan in JSON, for an audit or another process: what planq_plan_from_json() compares. */
planq_code planq_plan_to_json(planq_plan plan, char* buffer, size_t capacity, size_t* size);
/* What the kernel promises about its bits, in JSON. */
planq_code planq_plan_guarantee(planq_plan plan, char* buffer, size_t capacity, size_t* size);
/* What each operand has to be, in JSON: a list of {"name", "role", "dtype", "shape", "storage",
 * "optional", "kind", "shapes"}. An extent that is known at run is {"dim": name, "max": integer}.
 */
planq_code planq_plan_operands(planq_plan plan, char* buffer, size_t capacity, size_t* size);
/* Every kernel of the operator, in JSON, with the reason why it was or was not chosen. */
planq_code planq_plan_explain(planq_plan plan, char* buffer, size_t capacity, size_t* size);

/* An extent of a call, in the place of a Dim of the descriptor. */
typedef struct planq_extent {
  const char* name;
  int64_t value;
} planq_extent;

enum { PLANQ_ROLE_INPUT = 0, PLANQ_ROLE_OUTPUT = 1, PLANQ_ROLE_INOUT = 2 };
enum { PLANQ_KIND_TENSOR = 0, PLANQ_KIND_LIST = 1, PLANQ_KIND_SCALAR = 2 };

/* What an operand has to be: enough to allocate an output. */
typedef struct planq_operand_info {
  const char* name;   /* stays as long as the library, as the next one */
  const char* dtype;  /* of the elements, such as "int4" */
  int32_t role;       /* PLANQ_ROLE_INPUT, PLANQ_ROLE_OUTPUT or PLANQ_ROLE_INOUT: both */
  int32_t kind;       /* PLANQ_KIND_TENSOR, PLANQ_KIND_LIST or PLANQ_KIND_SCALAR: one number, which
                         may be given by value where it is an input */
  int32_t optional;   /* 1: the caller may leave it out */
  uint8_t code, bits; /* of what memory holds, as DLPack has it; 4-bit codes are uint8 */
  uint16_t unused;    /* 0 */
  size_t members;     /* of a list; else 1 */
  int32_t ndim;       /* of the memory, as `shape`; a list's are those of a member */
  int32_t unused_too; /* 0 */
  int64_t shape[8];   /* the first `ndim` are meant */
  size_t bytes;       /* of compact memory of this shape */
} planq_operand_info;

/* How many operands a plan has: those that its descriptor rules out are not among them. */
planq_code planq_plan_count_operands(planq_plan plan, size_t* count);

/* What operand `index` of a plan has to be; of a list, its member `member`, else 0. Extents as
 * planq_plan_workspace_size() takes them; with none, a Dim has its maximum. A list without members
 * has `ndim` and `bytes` 0.
 * Errors: PLANQ_ERROR_ARGUMENT where there is no such operand or member. Of extents: likewise. */
planq_code planq_plan_operand(planq_plan plan, size_t index, size_t member,
                              const planq_extent* extents, size_t count, planq_operand_info* info);

/* Where a workspace has to begin: at a multiple of so many bytes. */
enum { PLANQ_WORKSPACE_ALIGNMENT = 256 };

/* Bytes of workspace that a run needs: with `count` extents, one for each Dim of the plan, for
 * exactly these; with none (NULL, 0) enough for every extent. 0: no workspace is needed.
 * Errors: PLANQ_ERROR_DESCRIPTOR where an extent is negative or above the maximum of its Dim,
 * PLANQ_ERROR_ARGUMENT where they are not the plan's. */
planq_code planq_plan_workspace_size(planq_plan plan, const planq_extent* extents, size_t count,
                                     size_t* bytes);

/* The bodies of the plan's SKU in order of preference, in JSON, for extents as
 * planq_plan_workspace_size() takes them; with none for the largest: a list of {"name", "chosen",
 * "reason", "reason_kind", "workspace", "constraints"}. Errors: likewise. */
planq_code planq_plan_bodies(planq_plan plan, const planq_extent* extents, size_t count,
                             char* buffer, size_t capacity, size_t* size);

/* Whether planq_run() would take these operands: PLANQ_OK or PLANQ_ERROR_ARGUMENT. */
planq_code planq_can_implement(planq_plan plan, const planq_operand* operands, size_t count);

/* Validates the operands and enqueues the operation. It allocates nothing and waits for nothing, so
 * it can be captured in a CUDA graph; on the host it has finished when it returns. The workspace is
 * undefined before and after, aligned to PLANQ_WORKSPACE_ALIGNMENT, on the plan's device; NULL and
 * 0 where none is needed. Operands may come in any order. Errors: PLANQ_ERROR_ARGUMENT,
 * PLANQ_ERROR_WORKSPACE, PLANQ_ERROR_STREAM: nothing was launched or written. PLANQ_ERROR_CUDA: the
 * launch failed. */
planq_code planq_run(planq_plan plan, const planq_stream* stream, void* workspace,
                     size_t workspace_bytes, const planq_operand* operands, size_t count);

/* --- Bound launches --------------------------------------------------------------------------- */

/* Validates operands and workspace once. The memory that they name is the caller's, and has to stay
 * until the launch ends; the descriptions of the tensors need not. Errors: as planq_run(). */
planq_code planq_bind(planq_plan plan, void* workspace, size_t workspace_bytes,
                      const planq_operand* operands, size_t count, planq_launch* launch);

/* Enqueues what was bound on a stream of the plan's device. Errors: PLANQ_ERROR_STREAM,
 * PLANQ_ERROR_CUDA. */
planq_code planq_launch_run(planq_launch launch, const planq_stream* stream);

/* The name of the body that runs. */
planq_code planq_launch_body(planq_launch launch, char* buffer, size_t capacity, size_t* size);

/* One reference more, or one less; the last one ends the launch. */
planq_code planq_launch_retain(planq_launch launch);
planq_code planq_launch_release(planq_launch launch);

#ifdef __cplusplus
}
#endif

#endif
