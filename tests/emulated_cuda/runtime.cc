#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "work.h"

namespace emulated_cuda {
namespace {

constexpr size_t kPage = 4096, kContextBytes = size_t{8} << 20;

struct Planted {
  int in = 0;  // the number of calls until one fails (1: the next one)
  cudaError_t status = cudaSuccess;
};

struct Held {
  size_t bytes = 0;
  int gpu = 0;
};

// Holds the state shared by all streams and callers.
struct Machine {
  std::mutex mutex;
  std::map<std::string, Planted> planted;
  std::map<int, cudaError_t> contexts;  // maps each opened GPU to the error that ended its context, if any
  std::map<void*, Held> held;
  std::map<void*, size_t> registered;
  // the threads that registered memory, each with the GPU that was current on it
  std::map<std::thread::id, int> registering;
  std::map<const void*, size_t> shared_bytes;                  // the limit of dynamic shared memory, for each kernel that has set one
  size_t registered_bytes = 0, total_bytes = size_t{1} << 30;  // total_bytes: the memory size of each GPU
  size_t blocking_copies = 0;
  int running = 0;  // the number of running kernels and copies; while it is 0, GPU memory must not be accessed

  // Sets the access rights of all GPU memory. The caller holds the mutex.
  void protect(int rights) {
    for (const auto& [at, piece] : held) ::mprotect(at, piece.bytes, rights);
  }
  size_t free_bytes(int gpu) const {
    size_t used = contexts.contains(gpu) ? kContextBytes : 0;
    for (const auto& [at, piece] : held) used += piece.gpu == gpu ? piece.bytes : 0;
    used += kept_bytes(gpu);
    return total_bytes - std::min(used, total_bytes);
  }
};
Machine& machine() {
  static Machine one;
  return one;
}

int gpus() {
  const char* text = std::getenv("SPILLWAY_EMULATED_GPUS");
  return text ? std::atoi(text) : 0;
}

// Returns the limit of shared memory per block, in bytes.
int shared_bytes() {
  const char* text = std::getenv("SPILLWAY_EMULATED_SHARED_BYTES");
  return text ? std::atoi(text) : 227 << 10;
}

// Returns whether another process has the GPU in exclusive mode.
bool is_taken(int gpu) {
  const char* text = std::getenv("SPILLWAY_EMULATED_TAKEN");
  return text && std::atoi(text) == gpu;
}

std::string peers() {
  const char* text = std::getenv("SPILLWAY_EMULATED_PEERS");
  return text ? text : "";
}

// Returns whether two GPUs are in the same linked island, within which copies always work.
bool linked(int a, int b) {
  const char* text = std::getenv("SPILLWAY_EMULATED_NVLINK");
  const int island = text ? std::atoi(text) : 0;
  return island > 0 && a / island == b / island;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

}  // namespace

cudaError_t said(cudaError_t status) {
  if (status != cudaSuccess && status != cudaErrorNotReady) last_error = status;
  return status;
}

cudaError_t planted(const char* function) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const auto found = m.planted.find(function);
  if (found == m.planted.end() || --found->second.in > 0) return cudaSuccess;
  const cudaError_t status = found->second.status;
  m.planted.erase(found);
  return status;
}

cudaError_t open_context(int gpu) {
  if (gpu < 0 || gpu >= gpus()) return gpus() == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice;
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (!m.contexts.contains(gpu) && is_taken(gpu)) return cudaErrorDevicesUnavailable;
  return m.contexts.try_emplace(gpu, cudaSuccess).first->second;
}
cudaError_t open_context() { return open_context(current_device); }
int current_gpu() { return current_device; }
void end_context(int gpu, cudaError_t status) {
  const std::lock_guard lock(machine().mutex);
  if (cudaError_t& error = machine().contexts[gpu]; error == cudaSuccess) error = status;
}

void fail(const char* function, int nth, cudaError_t status) {
  const std::lock_guard lock(machine().mutex);
  machine().planted[function] = {nth, status};
}
size_t held_bytes() {
  const std::lock_guard lock(machine().mutex);
  size_t bytes = 0;
  for (const auto& [at, piece] : machine().held) bytes += piece.bytes;
  return bytes;
}
size_t blocking_copies() {
  const std::lock_guard lock(machine().mutex);
  return machine().blocking_copies;
}
bool has_context(int gpu) {
  const std::lock_guard lock(machine().mutex);
  return machine().contexts.contains(gpu);
}
void forget_contexts() {
  const std::lock_guard lock(machine().mutex);
  machine().contexts.clear();
}
size_t registered_bytes() {
  const std::lock_guard lock(machine().mutex);
  return machine().registered_bytes;
}
Registrations registrations() {
  const std::lock_guard lock(machine().mutex);
  Registrations all{{}, machine().registering.size()};
  for (const auto& [thread, gpu] : std::exchange(machine().registering, {})) all.gpus.insert(gpu);
  return all;
}
void set_total_bytes(size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  machine().total_bytes = bytes;
}

size_t dynamic_shared_bytes(const void* kernel) {
  const std::lock_guard lock(machine().mutex);
  const auto found = machine().shared_bytes.find(kernel);
  return found == machine().shared_bytes.end() ? size_t{48} << 10 : found->second;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

namespace emulated_cuda {

Running::Running() {
  const std::lock_guard lock(machine().mutex);
  if (machine().running++ == 0) machine().protect(PROT_READ | PROT_WRITE);
}
Running::~Running() {
  const std::lock_guard lock(machine().mutex);
  if (--machine().running == 0) machine().protect(PROT_NONE);
}

}  // namespace emulated_cuda

// Two functions with which a library of the host uses GPU memory as if its work were a kernel on a stream: so the tests use PyTorch's CPU
// build as if it were one for GPUs (python/tests/emulated_torch.py). The first waits until the work that the stream holds now is done and
// returns the stream's status; from then on the calling thread may use GPU memory until the second. The calls nest.
static thread_local std::vector<std::unique_ptr<Running>> host_work;
extern "C" __attribute__((visibility("default"))) cudaError_t emulated_cuda_host_work_begin(cudaStream_t stream) {
  const cudaError_t status = cudaStreamSynchronize(stream);
  host_work.push_back(std::make_unique<Running>());
  return status;
}
extern "C" __attribute__((visibility("default"))) void emulated_cuda_host_work_end() { host_work.pop_back(); }

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

// SPILLWAY_EMULATED_DRIVER: the CUDA version that the driver is for, as CUDA writes it (12040); 0 if there is none.
cudaError_t cudaDriverGetVersion(int* version) {
  const char* text = std::getenv("SPILLWAY_EMULATED_DRIVER");
  *version = text ? std::atoi(text) : 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (int driver = 0; cudaDriverGetVersion(&driver) == cudaSuccess && driver < 13000) return said(cudaErrorInsufficientDriver);
  if (const cudaError_t status = planted("cudaGetDeviceCount"); status != cudaSuccess) return said(status);
  if (gpus() == 0) return said(cudaErrorNoDevice);
  while (peers() == "dead") ::pause();
  *count = gpus();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  if (gpus() == 0) return said(cudaErrorNoDevice);
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  note("cudaInitDevice");
  return said(open_context(device));
}
// Selects the thread's GPU and creates its context, as cudaSetDevice does since CUDA 12.
cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t status = open_context(device); status != cudaSuccess) return said(status);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= gpus()) return said(cudaErrorInvalidDevice);
  const char* capability = std::getenv("SPILLWAY_EMULATED_CAPABILITY");  // 90 unless it says another one
  const int number = capability ? std::atoi(capability) : 90;
  *properties = {};
  std::strcpy(properties->name, "emulated");
  properties->totalGlobalMem = machine().total_bytes;
  properties->major = number / 10, properties->minor = number % 10, properties->multiProcessorCount = 4, properties->pciDeviceID = device;
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= gpus()) return said(cudaErrorInvalidDevice);
  *value = attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? shared_bytes() : 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (device < 0 || device >= gpus() || peer < 0 || peer >= gpus()) return said(cudaErrorInvalidDevice);
  *can = device != peer && peers() != "none";
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int from, int to) {
  if (from < 0 || from >= gpus() || to < 0 || to >= gpus()) return said(cudaErrorInvalidDevice);
  *value = linked(from, to);
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  int can = 0;
  if (const cudaError_t status = cudaDeviceCanAccessPeer(&can, current_device, peer); status != cudaSuccess) return status;
  return can ? cudaSuccess : said(cudaErrorInvalidDevice);
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t status = planted("cudaMemGetInfo"); status != cudaSuccess) return said(status);
  if (const cudaError_t status = open_context(); status != cudaSuccess) return said(status);
  const std::lock_guard lock(machine().mutex);
  *total = machine().total_bytes;
  *free = machine().free_bytes(current_device);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  if (const cudaError_t status = planted("cudaFuncGetAttributes"); status != cudaSuccess) return said(status);
  if (const cudaError_t status = open_context(); status != cudaSuccess) return said(status);
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, current_device); properties.major < 8) return said(cudaErrorNoKernelImageForDevice);
  attributes->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  if (value < 0 || value > shared_bytes()) return said(cudaErrorInvalidValue);
  const std::lock_guard lock(machine().mutex);
  machine().shared_bytes[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t status = planted("cudaMalloc"); status != cudaSuccess) return said(status);
  if (const cudaError_t status = open_context(); status != cudaSuccess) return said(status);
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (bytes > m.free_bytes(current_device)) return said(cudaErrorMemoryAllocation);
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  const size_t whole = (bytes + kPage - 1) / kPage * kPage;
  *memory = ::mmap(nullptr, whole, m.running > 0 ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*memory == MAP_FAILED) return said(cudaErrorMemoryAllocation);
  m.held[*memory] = {whole, current_device};
  memory_taken(*memory, bytes, false);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return enqueue(stream, "cudaFreeAsync", [=] {
    Machine& m = machine();
    const std::lock_guard lock(m.mutex);
    const auto found = m.held.find(memory);
    if (found == m.held.end()) return;
    memory_given_back(memory);
    ::munmap(memory, found->second.bytes);
    keep(memory, found->second.bytes);
    m.held.erase(found);
  });
}
cudaError_t cudaDeviceSynchronize() {
  note("cudaDeviceSynchronize");
  wait_for_streams(current_device);
  return said(open_context());
}
// Frees memory after waiting for all work of the GPU, as CUDA does.
cudaError_t cudaFree(void* memory) {
  if (!memory) return cudaSuccess;
  Machine& m = machine();
  std::unique_lock lock(m.mutex);
  const auto found = m.held.find(memory);
  if (found == m.held.end()) return said(cudaErrorInvalidValue);
  const Held held = found->second;
  lock.unlock();
  wait_for_streams(held.gpu);
  lock.lock();
  memory_given_back(memory);
  ::munmap(memory, held.bytes);
  m.held.erase(memory);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  if (const cudaError_t status = planted("cudaHostRegister"); status != cudaSuccess) return said(status);
  if (const cudaError_t status = open_context(); status != cudaSuccess) return said(status);
  if (bytes >= size_t{1} << 20) {  // a large registration takes as long as the test has set
    const char* slow = std::getenv("SPILLWAY_EMULATED_REGISTER_MS");
    std::this_thread::sleep_for(std::chrono::milliseconds(slow ? std::atoi(slow) : 20));
  }
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (!m.registered.emplace(memory, bytes).second) return said(cudaErrorHostMemoryAlreadyRegistered);
  m.registered_bytes += bytes;
  memory_taken(memory, bytes, true);
  m.registering[std::this_thread::get_id()] = current_device;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const auto found = m.registered.find(memory);
  if (found == m.registered.end()) return said(cudaErrorInvalidValue);
  m.registered_bytes -= found->second;
  m.registered.erase(found);
  memory_given_back(memory);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  auto* at = const_cast<void*>(memory);
  // Finds the piece that contains the address `at`: the last piece that begins at or before `at`, if it is long enough.
  const auto piece_of = [&](auto& pieces, auto bytes_of) {
    auto piece = pieces.upper_bound(at);
    if (piece == pieces.begin()) return pieces.end();
    --piece;
    return static_cast<std::byte*>(at) < static_cast<std::byte*>(piece->first) + bytes_of(piece->second) ? piece : pieces.end();
  };
  if (const auto found = piece_of(m.held, [](const Held& held) { return held.bytes; }); found != m.held.end()) {
    *attributes = {cudaMemoryTypeDevice, found->second.gpu, at, nullptr};
  } else if (piece_of(m.registered, [](size_t bytes) { return bytes; }) != m.registered.end()) {
    *attributes = {cudaMemoryTypeHost, current_device, at, at};
  } else {
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, at};
  }
  return cudaSuccess;
}

// Returns whether only a part of the memory is registered, or several calls registered
// it. The driver requires that one call registered all of a copy's host memory, or none.
bool half_registered(const void* memory, size_t bytes) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const auto* begin = static_cast<const std::byte*>(memory);
  const auto whole = [&](const auto& piece) {
    const auto* at = static_cast<const std::byte*>(piece.first);
    return at <= begin && begin + bytes <= at + piece.second;
  };
  auto piece = m.registered.lower_bound(const_cast<std::byte*>(begin) + bytes);  // finds the first registered piece behind the memory
  if (bytes == 0 || piece == m.registered.begin()) return false;
  --piece;
  return static_cast<const std::byte*>(piece->first) + piece->second > begin && !whole(*piece);
}

cudaMemoryType type_of(const void* memory) {
  cudaPointerAttributes attributes{};
  cudaPointerGetAttributes(&attributes, memory);
  return attributes.type;
}
// Returns whether host memory is pageable (unknown to the driver): "CUDA Runtime API 13.0, API synchronization behavior".
bool is_pageable(const void* memory) { return type_of(memory) == cudaMemoryTypeUnregistered; }
Engine engine_between(const void* to, const void* from) {
  const bool to_gpu = type_of(to) == cudaMemoryTypeDevice, from_gpu = type_of(from) == cudaMemoryTypeDevice;
  if (to_gpu && from_gpu) return Engine::kernels;
  return to_gpu ? Engine::to_gpu : Engine::to_host;
}

// Copies from or to pageable memory. The source is read before the call returns, and the
// destination is complete when it returns. In both directions the call waits for the stream.
template <class Copy>
cudaError_t copy_of_pages(cudaStream_t stream, const char* what, Copy copy, Cost cost) {
  if (stream) {
    if (const cudaError_t status = cudaStreamSynchronize(stream); status != cudaSuccess) return status;
  }
  if (const cudaError_t status = enqueue(stream, what, copy, cost); status != cudaSuccess) return status;
  {
    const std::lock_guard lock(machine().mutex);
    ++machine().blocking_copies;
  }
  return stream ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (const cudaError_t status = open_context(); status != cudaSuccess) return said(status);
  if (half_registered(to, bytes) || half_registered(from, bytes)) return said(cudaErrorInvalidValue);
  const auto copy = [=] {
    const Running running;
    std::memcpy(to, from, bytes);
    memory_written(to, bytes);
  };
  const Cost cost = cost_of_copy(engine_between(to, from), bytes);
  return is_pageable(to) || is_pageable(from) ? copy_of_pages(stream, "cudaMemcpyAsync", copy, cost)
                                              : enqueue(stream, "cudaMemcpyAsync", copy, cost);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) { return cudaMemcpyAsync(to, from, bytes, kind); }
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind,
                              cudaStream_t stream) {
  if (const cudaError_t status = open_context(); status != cudaSuccess) return said(status);
  if (width > to_pitch || width > from_pitch) return said(cudaErrorInvalidPitchValue);
  const auto copy = [=] {
    const Running running;
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch, width);
      memory_written(static_cast<std::byte*>(to) + row * to_pitch, width);
    }
  };
  const Cost cost = cost_of_copy(engine_between(to, from), width * height);
  return is_pageable(to) || is_pageable(from) ? copy_of_pages(stream, "cudaMemcpy2DAsync", copy, cost)
                                              : enqueue(stream, "cudaMemcpy2DAsync", copy, cost);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream) {
  if (to_device < 0 || to_device >= gpus() || from_device < 0 || from_device >= gpus()) return said(cudaErrorInvalidDevice);
  const auto copy = [=] {
    const bool well = linked(from_device, to_device);
    while (peers() == "hang" && !well) ::pause();
    const Running running;
    if (peers() != "lost" || well) std::memcpy(to, from, bytes);
    memory_written(to, bytes);
  };
  return enqueue(stream, "cudaMemcpyPeerAsync", copy, cost_of_copy(Engine::between_gpus, bytes));
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, "cudaMemsetAsync", [=] {
    const Running running;
    std::memset(to, value, bytes);
    memory_written(to, bytes);
  });
}
