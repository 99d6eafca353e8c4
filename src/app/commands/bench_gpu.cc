#include <functional>

#include "app/commands/bench.h"
#include "device/gpu_queue.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "device/transfer.h"
#include "kernels/products/matmul.h"
#include "tensor/tensor.h"

namespace spillway::app {
namespace {

// While an OnGpu object lives, the current stream uses the GPU and its memory.
// A loop passed to done() counts as finished when the GPU has finished it.
class OnGpu {
 public:
  OnGpu(Device gpu, i64 bytes)
      : pool_("bench", bytes, "", gpu_memory(gpu.index, bytes)), queue_(gpu), stream_{gpu, nullptr, &pool_, queue_.handle()} {}
  std::function<void()> done(std::function<void()> loop) const {
    return [this, loop = std::move(loop)] {
      loop();
      queue_.wait();
    };
  }

 private:
  MemoryPool pool_;
  const GpuQueue queue_;
  const Stream stream_;
  const StreamScope scope_{stream_};
};

BenchRow gpu_row(const char* name, double value, const char* unit, std::optional<double> ceiling = {}) {
  return {.name = name, .path = "", .value = value, .unit = unit, .ceiling = ceiling, .threads = 0};
}

// Returns numbers of both signs from 0.5 to 1, valid as f32 and (two to a word) as bf16. Products of zeros would draw less power and be
// faster than real ones.
Tensor numbers(const Shape& shape, DType dtype) {
  std::vector<u32> words(static_cast<size_t>(shape.elems() * size_of(dtype) / 4));
  for (size_t i = 0; i < words.size(); ++i) words[i] = 0x3f003f00u | (static_cast<u32>(i) * 2654435761u & 0x807f807fu);
  Tensor t = empty(shape, dtype);
  transfer(t.raw(), reinterpret_cast<const std::byte*>(words.data()), t.bytes());
  return t;
}

// Returns the floating-point operations per second of a matrix product on the GPU.
double product_rate(const BenchSize& size, Device gpu, DType dtype) {
  const i64 m = size.gpu_tokens, k = size.gpu_width, n = 4 * k, room = 64 * kMiB;
  const OnGpu on(gpu, (m * k + k * n + m * n) * size_of(dtype) + room);
  const Tensor a = numbers({m, k}, dtype), b = numbers({k, n}, dtype), c = empty({m, n}, dtype),
               workspace = empty({kernels::matmul_workspace_bytes(m, n, k, dtype)}, DType::uint8);
  const double seconds = time_loops({on.done([&] { kernels::matmul(a, b, {}, c, workspace); })}, size)[0].seconds;
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds;
}

}  // namespace

std::vector<BenchRow> bench_gpu_matmul(const BenchSize& size, Device gpu) {
  return {gpu_row("gpu.matmul-f32", product_rate(size, gpu, DType::f32), "FLOP/s"),
          gpu_row("gpu.matmul-bf16", product_rate(size, gpu, DType::bf16), "FLOP/s")};
}

std::vector<BenchRow> bench_gpu_memory(const BenchSize& size, Device gpu) {
  const OnGpu on(gpu, 2 * size.gpu_bytes + kMiB);
  const Tensor a = empty({size.gpu_bytes}, DType::uint8), b = empty({size.gpu_bytes}, DType::uint8);
  fill_zeros(a.raw(), a.bytes());
  const double seconds = time_loops({on.done([&] { transfer(b.raw(), a.raw(), a.bytes()); })}, size)[0].seconds;
  return {gpu_row("gpu.copy", 2 * static_cast<double>(a.bytes()) / seconds, "bytes/s")};
}

std::vector<BenchRow> bench_link(const BenchSize& size, Device gpu) {
  MemoryPool host("bench", size.link_bytes, "", pinned_memory());
  const Allocation here = host.allocate(size.link_bytes, "bench: host memory");
  const OnGpu on(gpu, size.link_bytes + kMiB);
  const Tensor there = empty({size.link_bytes}, DType::uint8);
  const auto s = time_loops(
      {[&] { transfer(there.raw(), here.data(), there.bytes()); }, [&] { transfer(here.data(), there.raw(), there.bytes()); }}, size);
  const auto bytes = static_cast<double>(size.link_bytes);
  return {gpu_row("link.to-gpu", bytes / s[0].seconds, "bytes/s"), gpu_row("link.from-gpu", bytes / s[1].seconds, "bytes/s")};
}

}  // namespace spillway::app
