// Benchmarks operations that are bounded by a GPU's memory, against a copy within that memory: copies between host and GPU, and kernels,
// whose bytes are the fewest that they must read and write. Each iteration runs the kernel and a copy of 256 MiB in turn; times are the
// GPU's, medians over the iterations. Counters: GB/s (10^9 bytes read and written; over the bus: sent), copy_GB/s, share_% = their ratio
// (85 is promised).
#include <chrono>

#include "bench/gpu_cuda.h"
#include "kernels/accumulate.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/losses/cross_entropy.h"
#include "kernels/rows/norm.h"
#include "kernels/sequence/embedding.h"
#include "kernels/sequence/rope.h"
#include "optim/adamw_gpu.h"
#include "optim/tile_values.h"

namespace spillway::bench {
namespace {

using kernels::Unary;

const i64 kElems = tiny() ? 1 << 13 : 1 << 27;  // number of bf16 elements in 256 MiB

Verdict& verdict() {
  static Verdict one("memory-bound kernels", 85, "a device-to-device copy's rate");
  return one;
}

struct Kernel {
  Work work;  // the operation to measure; it owns its tensors
  double bytes;
};

void beside_copy(benchmark::State& state, const std::string& name, const std::function<Kernel(const Gpu&)>& make) {
  const Gpu gpu;
  const StreamScope scope(gpu.stream());
  const Kernel kernel = make(gpu);
  const Tensor from = gpu.numbers({kElems}, DType::bf16), to = empty({kElems}, DType::bf16);
  const auto seconds = in_turn(state, gpu, {kernel.work, [&] { gpu.queue().copy(to.raw(), from.raw(), from.bytes()); }});
  const double rate = kernel.bytes / seconds[0] * 1e-9, top = 2 * static_cast<double>(from.bytes()) / seconds[1] * 1e-9;
  state.counters["GB/s"] = rate;
  state.counters["copy_GB/s"] = top;
  state.counters["share_%"] = 100 * rate / top;
  verdict().add(name, 100 * rate / top);
}

// Returns the bytes of all these tensors. Each tensor counts once, as read or written.
double bytes_of(std::initializer_list<Tensor> all) {
  double bytes = 0;
  for (const Tensor& t : all) bytes += static_cast<double>(t.bytes());
  return bytes;
}

Kernel gelu(const Gpu& gpu) {
  const Tensor x = gpu.numbers({kElems}, DType::bf16), y = empty({kElems}, DType::bf16);
  return {[=] { kernels::unary(Unary::gelu_tanh, x, y); }, bytes_of({x, y})};
}

Kernel gelu_gradient(const Gpu& gpu) {
  const Tensor x = gpu.numbers({kElems}, DType::bf16), dy = gpu.numbers({kElems}, DType::bf16), dx = empty({kElems}, DType::bf16);
  return {[=] { kernels::unary_gradient(Unary::gelu_tanh, x, dy, dx); }, bytes_of({x, dy, dx})};
}

Kernel swiglu(const Gpu& gpu) {
  const Tensor gate = gpu.numbers({kElems}, DType::bf16), up = gpu.numbers({kElems}, DType::bf16), y = empty({kElems}, DType::bf16);
  return {[=] { kernels::glu(kernels::Glu::silu, gate, up, y); }, bytes_of({gate, up, y})};
}

Kernel swiglu_gradient(const Gpu& gpu) {
  const Tensor gate = gpu.numbers({kElems}, DType::bf16), up = gpu.numbers({kElems}, DType::bf16), dy = gpu.numbers({kElems}, DType::bf16);
  const Tensor dgate = empty({kElems}, DType::bf16), dup = empty({kElems}, DType::bf16);
  return {[=] { kernels::glu_gradient(kernels::Glu::silu, gate, up, dy, dgate, dup); }, bytes_of({gate, up, dy, dgate, dup})};
}

// Benchmarks the addition of a residual connection.
Kernel add_bf16(const Gpu& gpu) {
  const Tensor a = gpu.numbers({kElems}, DType::bf16), b = gpu.numbers({kElems}, DType::bf16), sum = empty({kElems}, DType::bf16);
  return {[=] { kernels::add(a, b, sum); }, bytes_of({a, b, sum})};
}

Kernel accumulate_f32(const Gpu& gpu) {
  const Tensor to = gpu.numbers({kElems / 2}, DType::f32), from = gpu.numbers({kElems / 2}, DType::f32);
  return {[=] { kernels::accumulate(to, from); }, bytes_of({to, to, from})};
}

Kernel widen_bf16(const Gpu& gpu) {
  const Tensor from = gpu.numbers({kElems}, DType::bf16), to = empty({kElems}, DType::f32);
  return {[=] { kernels::copy(from, to); }, bytes_of({from, to})};
}

struct Norm {
  Norm(const Gpu& gpu, i64 columns, bool centred)
      : rows(std::max<i64>(1, kElems / columns)), x(gpu.numbers({rows, columns}, DType::bf16)), gamma(gpu.numbers({columns}, DType::bf16)) {
    if (centred) beta = gpu.numbers({columns}, DType::bf16);
    statistics = empty({rows, 2}, DType::f32);
    y = empty({rows, columns}, DType::bf16);
  }
  void run() const { kernels::norm(x, gamma, beta, 1e-5, y, statistics); }
  i64 rows;
  Tensor x, gamma, beta, statistics, y;
};

Kernel norm(const Gpu& gpu, i64 columns, bool centred) {
  const Norm n(gpu, columns, centred);
  return {[=] { n.run(); }, bytes_of({n.x, n.y, n.statistics})};
}

Kernel norm_gradient(const Gpu& gpu, i64 columns, bool centred) {
  const Norm n(gpu, columns, centred);
  n.run();
  const Tensor dx = empty(n.x.shape(), DType::bf16), dgamma = empty({columns}, DType::f32);
  const Tensor dbeta = centred ? empty({columns}, DType::f32) : Tensor();
  const Tensor workspace = empty({kernels::norm_gradient_workspace_bytes(n.rows, columns, DType::bf16)}, DType::uint8);
  return {[=] { kernels::norm_gradient(n.x, n.gamma, n.statistics, n.y, centred, {}, dx, dgamma, dbeta, workspace); },
          bytes_of({n.x, n.y, n.statistics, dx})};
}

struct Logits {
  explicit Logits(const Gpu& gpu) {
    logits = gpu.numbers({tokens, vocabulary}, DType::f32);
    targets = gpu.ids({tokens}, vocabulary);
    statistics = empty({tokens, 2}, DType::f32);
    loss = empty({tokens}, DType::f32);
  }
  void run() const { kernels::cross_entropy(logits, targets, statistics, loss); }
  const i64 tokens = tiny() ? 3 : 4096, vocabulary = tiny() ? 1001 : 50257;
  Tensor logits, targets, statistics, loss;
};

Kernel cross_entropy(const Gpu& gpu) {
  const Logits l(gpu);
  return {[=] { l.run(); }, bytes_of({l.logits})};
}

Kernel cross_entropy_gradient(const Gpu& gpu) {
  const Logits l(gpu);
  l.run();
  const Tensor dlogits = empty(l.logits.shape(), DType::bf16);
  return {[=] { kernels::cross_entropy_gradient(l.logits, l.targets, l.statistics, 1e-3, dlogits); }, bytes_of({l.logits, dlogits})};
}

const i64 kVocabulary = tiny() ? 101 : 50257, kWidth = tiny() ? 48 : 768;

Kernel embedding(const Gpu& gpu) {
  const Tensor ids = gpu.ids({kElems / kWidth}, kVocabulary), table = gpu.numbers({kVocabulary, kWidth}, DType::bf16);
  const Tensor out = empty({kElems / kWidth, kWidth}, DType::bf16);
  return {[=] { kernels::embedding(ids, table, out); }, bytes_of({out, out})};
}

Kernel embedding_gradient(const Gpu& gpu) {
  const Tensor ids = gpu.ids({kElems / kWidth}, kVocabulary), dout = gpu.numbers({kElems / kWidth, kWidth}, DType::bf16);
  const Tensor dtable = empty({kVocabulary, kWidth}, DType::f32);
  return {[=] { kernels::embedding_gradient(ids, dout, -1, dtable); }, bytes_of({dout, dtable})};
}

Kernel rope(const Gpu& gpu) {
  const i64 positions = tiny() ? 4 : 1024, heads = tiny() ? 2 : 16, head = 128, batch = kElems / (positions * heads * head);
  const Tensor x = gpu.numbers({batch, positions, heads, head}, DType::bf16), y = empty(x.shape(), DType::bf16);
  const Tensor at = gpu.ids({batch, positions}, positions);
  const std::vector<double> frequencies(static_cast<size_t>(head / 2), 0.01);
  return {[=] { kernels::rope(x, at, frequencies, 1, false, y); }, bytes_of({x, y})};
}

const i64 kTiles = tiny() ? 2 : 6104;  // 100 million parameters

// Benchmarks AdamW in place, on tiles that all hold the same numbers.
Kernel adamw(const Gpu& gpu, const optim::StateFormat& f) {
  std::vector<u8> weight(static_cast<size_t>(f.weight_tile_bytes())), state(static_cast<size_t>(f.state_tile_bytes()));
  const std::vector<float> values(optim::kTileElems, 1e-2F), v(optim::kTileElems, 1e-4F);
  optim::write_tile<float>(f, {values, values, v}, reinterpret_cast<std::byte*>(weight.data()), reinterpret_cast<std::byte*>(state.data()));
  const Tensor weights = gpu.repeated<u8>(weight, {kTiles * f.weight_tile_bytes()});
  const Tensor states = gpu.repeated<u8>(state, {kTiles * f.state_tile_bytes()});
  const Tensor gradients = gpu.numbers({kTiles * optim::kTileElems}, f.gradient);
  const auto scalars = std::make_shared<optim::Scalars<double>>(optim::make_adamw_scalars<double>({}, 1e-4, 0.1, 10, 1.0));
  const double read = bytes_of({gradients, states}) + (f.update_reads_weight() ? bytes_of({weights}) : 0);
  return {[=] {
            const optim::TilePart whole{kTiles * optim::kTileElems, scalars.get()};
            optim::adamw_update_tiles_on_gpu(f, {gradients.raw(), weights.raw(), states.raw(), weights.raw(), states.raw()}, kTiles,
                                             {&whole, 1}, {{1}, 10, 0});
          },
          read + bytes_of({weights, states})};
}

Kernel square_sums(const Gpu& gpu) {
  const Tensor gradients = gpu.numbers({kTiles * optim::kTileElems}, DType::f32), sums = empty({kTiles}, DType::f64);
  return {[=] { optim::tile_square_sums_on_gpu(gradients.raw(), DType::f32, kTiles, sums.data<double>()); }, bytes_of({gradients})};
}

// The benchmarks below measure copies between the host and a GPU, and within the GPU.

void rate_of(benchmark::State& state, const Work& work, double bytes) {
  std::vector<double> seconds;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    state.SetIterationTime(seconds.back());
  }
  state.counters["GB/s"] = bytes / median(seconds) * 1e-9;
}

void copy(benchmark::State& state, bool to_gpu, bool to_host, bool pinned) {
  const Gpu gpu;
  const GpuQueue other(Device::cuda(0));
  const StreamScope scope(gpu.stream());
  const i64 bytes = tiny() ? 1 << 16 : 1 << 29;
  MemoryPool host("host", kUnlimited, "", pinned ? pinned_memory() : system_memory());
  const Allocation up = host.allocate(bytes, "up"), down = host.allocate(bytes, "down");
  std::fill_n(up.data(), bytes, std::byte{1}), std::fill_n(down.data(), bytes, std::byte{2});
  const Tensor one = empty({bytes}, DType::uint8), two = empty({bytes}, DType::uint8);
  const Work work = [&] {
    if (to_gpu) gpu.queue().copy(one.raw(), up.data(), bytes);
    if (to_host) other.copy(down.data(), two.raw(), bytes);
    if (!to_gpu && !to_host) gpu.queue().copy(one.raw(), two.raw(), bytes);
    gpu.queue().wait(), other.wait();
  };
  work();
  rate_of(state, work, static_cast<double>(bytes * (to_gpu == to_host ? 2 : 1)));
}

void add_all() {
  add("copy/within_gpu", [](benchmark::State& state) { copy(state, false, false, true); });
  for (const bool pinned : {true, false}) {
    const std::string kind = pinned ? "/pinned" : "/pageable";
    add("copy/to_gpu" + kind, [=](benchmark::State& state) { copy(state, true, false, pinned); });
    add("copy/to_host" + kind, [=](benchmark::State& state) { copy(state, false, true, pinned); });
    add("copy/both_ways" + kind, [=](benchmark::State& state) { copy(state, true, true, pinned); });
  }
  const auto kernel = [](const std::string& name, const std::function<Kernel(const Gpu&)>& make) {
    add(name, [=](benchmark::State& state) { beside_copy(state, name, make); });
  };
  kernel("gelu/bf16", gelu);
  kernel("gelu_gradient/bf16", gelu_gradient);
  kernel("swiglu/bf16", swiglu);
  kernel("swiglu_gradient/bf16", swiglu_gradient);
  kernel("add/bf16", add_bf16);
  kernel("accumulate/f32", accumulate_f32);
  kernel("widen/bf16_to_f32", widen_bf16);
  for (const i64 columns : {768, 2048, 4096}) {
    for (const bool centred : {true, false}) {
      const std::string name = centred ? "layer_norm" : "rms_norm", of = "/bf16/" + std::to_string(columns);
      kernel(name + of, [=](const Gpu& gpu) { return norm(gpu, columns, centred); });
      kernel(name + "_gradient" + of, [=](const Gpu& gpu) { return norm_gradient(gpu, columns, centred); });
    }
  }
  kernel("cross_entropy/f32", cross_entropy);
  kernel("cross_entropy_gradient/f32_to_bf16", cross_entropy_gradient);
  kernel("embedding/bf16", embedding);
  kernel("embedding_gradient/bf16", embedding_gradient);
  kernel("rope/bf16", rope);
  const std::pair<const char*, optim::StateFormat> formats[] = {
      {"f32", optim::plain_format(DType::f32)},
      {"bf16_fp32_master", optim::plain_format(DType::bf16)},
      {"bf16_split_master", {DType::bf16, optim::Master::split}},
      {"bf16_split_master/int8_moments", {DType::bf16, optim::Master::split, optim::Moments::int8}}};
  for (const auto& [name, format] : formats) {
    kernel(std::string("adamw/") + name, [f = format](const Gpu& gpu) { return adamw(gpu, f); });
  }
  kernel("square_sums/f32", square_sums);
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_benches(argc, argv, spillway::bench::add_all, spillway::bench::verdict()); }
