// The part of the CUDA runtime that this project uses, on the CPU: a GPU for machines without one, so that what runs on GPUs is tested on
// every change. The GPU's memory can be touched only while a kernel or a copy runs, a stream is a thread that works off its queue, so that
// what is not ordered may really run at once, and kernels are run thread by thread (block.cc). Found instead of CUDA's own headers where
// the project is configured with SPILLWAY_CUDA=EMULATED. Semantics after the CUDA Runtime API and Programming Guide 13.0; what is not
// declared here is not used. The number of GPUs is SPILLWAY_EMULATED_GPUS, 0 unless set; SPILLWAY_EMULATED_TAKEN is the number of
// one that another process has for itself. SPILLWAY_EMULATED_PEERS says what becomes of copies between two of them: hang, lost (the bytes),
// none (the driver allows none), else they are made; SPILLWAY_EMULATED_NVLINK, of how many neighbours at a time copies are made all the
// same. SPILLWAY_EMULATED_SEED: of what a GPU leaves open (block.cc). SPILLWAY_EMULATED_DELAY: microseconds that a piece of work in a
// stream may be late.
#pragma once
#define __CUDA_EMULATED__ 1
#include <cstddef>
#include <cstdint>
#include <set>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidPitchValue = 12,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorLaunchFailure = 719,
};

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaEventDefault = 0, cudaHostRegisterDefault = 0,
                   cudaHostRegisterPortable = 1, cudaEventBlockingSync = 1, cudaDeviceScheduleBlockingSync = 4,
                   cudaInitDeviceFlagsAreValid = 1;

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
  int pciDomainID, pciBusID, pciDeviceID;
  struct {
    char bytes[16];
  } uuid;
};
enum cudaDeviceP2PAttr { cudaDevP2PAttrNativeAtomicSupported = 3 };
enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2 };
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
struct cudaFuncAttributes {
  int maxThreadsPerBlock;
};

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUmemPoolHandle_st* cudaMemPool_t;
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
// The current GPU's own stream, for which no other is told to wait: ours are all made with cudaStreamNonBlocking.
#define cudaStreamLegacy ((cudaStream_t)0x1)

const char* cudaGetErrorName(cudaError_t status);
const char* cudaGetErrorString(cudaError_t status);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
template <class T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
typedef void (*cudaHostFn_t)(void* data);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

// What tests may plant and ask.
namespace emulated_cuda {

/// The `nth` call of this function from now on (1: the next) returns `status`; asynchronous work of a stream: the next copy or kernel.
void fail(const char* function, int nth, cudaError_t status);
/// Bytes of device memory held, of all GPUs.
size_t held_bytes();
/// Copies of host memory that is not registered, each of which waited for its stream.
size_t blocking_copies();
/// Whether this process has opened the GPU.
bool has_context(int gpu);
/// As a new process finds the GPUs.
void forget_contexts();
/// From now on cudaEventElapsedTime() tells when a GPU of these rates would have come to the events (times.h). `threads_per_s`: of all
/// kernels but cublasLtMatmul, whose is `flops`.
struct Rates {
  double copy_bytes_per_s, threads_per_s, flops;
};
void use_rates(const Rates& rates);
void forget_rates();
/// Of each GPU (default 1 GiB).
void set_total_bytes(size_t bytes);
/// Kernels that were loaded while an exchange on a GPU waited for another rank, since all were forgotten: a real driver may wait for the
/// exchange, and the other rank for this one.
int late_loads();
void forget_kernels();
/// Bytes of host memory that are registered.
size_t registered_bytes();
/// GPUs that were current, and the number of threads, when host memory was registered since this was asked last.
struct Registrations {
  std::set<int> gpus;
  size_t threads = 0;
};
Registrations registrations();

}  // namespace emulated_cuda
