// Defines RAII handles for objects of the CUDA runtime (one small template and an alias for each kind), and translates
// CUDA errors into Error. Only code that is built with CUDA includes this header (device/ and *_cuda.*). A handle belongs
// to the device that was current when it was created. It can be moved but not copied, and is used by one thread at a time.
#pragma once
#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace spillway {

/// Throws an Error(io) that names the CUDA function `call`, unless `status` is
/// success. Any CUDA call may report an error of earlier asynchronous work.
inline void cuda_check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw Error(ErrorCode::io, std::string("[cuda] expected ") + call + " to succeed, got " + cudaGetErrorName(status) + " (" +
                                 std::to_string(static_cast<int>(status)) + "): " + cudaGetErrorString(status));
}

template <typename Handle, cudaError_t (*kDestroy)(Handle)>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(Handle handle) : handle_(handle) {}
  CudaHandle(CudaHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~CudaHandle() { reset(); }

  /// Destroys the CUDA object now. The status is ignored: an error of asynchronous work is reported to the code that waits for that work.
  void reset() {
    if (handle_) static_cast<void>(kDestroy(std::exchange(handle_, nullptr)));
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

using CudaStream = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using CudaEvent = CudaHandle<cudaEvent_t, cudaEventDestroy>;

/// Creates a stream on the current device that does not synchronize with the legacy default stream.
inline CudaStream make_cuda_stream() {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return CudaStream(stream);
}

/// Creates an event on the current device that orders work and does not measure time.
inline CudaEvent make_cuda_event() {
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return CudaEvent(event);
}

}  // namespace spillway
