// Benchmarks convolutions against a matrix product with the same number of operations, and training steps (forward, backward, SGD with
// momentum) of the network of PyTorch's CIFAR-10 tutorial and of ResNet-18 at 32x32, in images/s. Each convolution's row runs both in turn:
// `gflops` and the `matmul` ceiling are measured in the same minute. Two threads, f32. bench/torch_peers.py measures PyTorch on these
// networks for comparison.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "device/arena.h"
#include "device/memory_pool.h"
#include "kernels/images/conv.h"
#include "kernels/products/matmul.h"
#include "models/model.h"
#include "models/presets.h"
#include "models/resnet.h"
#include "models/weights.h"
#include "nn/eager.h"

namespace spillway {
namespace {

constexpr int kThreads = 2;

using kernels::ConvShape;

struct Layer {
  const char* name;
  ConvShape shape;
};

// Lists layers of ResNet-18 at 224x224 (4 images; 32 for layers that repeat) and at 32x32 (32
// images), and the second convolution of PyTorch's CIFAR-10 tutorial network.
const Layer kLayers[] = {{"resnet18/stem@224", {4, 3, 64, 1, 224, {7, 2, 3}}},
                         {"resnet18/layer1@224", {32, 64, 64, 1, 56, {3, 1, 1}}},
                         {"resnet18/layer2.0@224", {4, 64, 128, 1, 56, {3, 2, 1}}},
                         {"resnet18/layer2@224", {32, 128, 128, 1, 28, {3, 1, 1}}},
                         {"resnet18/layer3@224", {32, 256, 256, 1, 14, {3, 1, 1}}},
                         {"resnet18/layer4@224", {32, 512, 512, 1, 7, {3, 1, 1}}},
                         {"resnet18/layer1@32", {32, 64, 64, 1, 8, {3, 1, 1}}},
                         {"resnet18/layer3@32", {32, 256, 256, 1, 2, {3, 1, 1}}},
                         {"cifar_net/conv2", {32, 6, 16, 1, 14, {5}}}};

Tensor filled(const Shape& shape) {
  const Tensor t = empty(shape, DType::f32);
  u32 state = 1;
  for (float& x : t.span<float>()) x = static_cast<float>((state = state * 1664525U + 1013904223U) >> 8) * 0x1p-24F - 0.5F;
  return t;
}

Tensor bytes(i64 n) { return empty({n}, DType::uint8); }

template <class F>
double seconds(F work) {
  work();  // the first run wakes the threads and is not timed
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

enum class Part { forward, input_gradient, weight_gradient };

// Holds one convolution, or one of its gradients, and a matrix product of the same dimensions.
class Work {
 public:
  Work(const ConvShape& s, Part part) : s_(s), part_(part), at_(s.positions()) {
    x_ = filled({s.images, s.inputs, s.extent.h, s.extent.w});
    w_ = filled({s.outputs, s.inputs, s.window.kernel.h, s.window.kernel.w});
    y_ = filled({s.images, s.outputs, at_.h, at_.w});
    const i64 k = s.inputs * s.window.kernel.h * s.window.kernel.w, j = s.images * at_.h * at_.w;
    gigaflop = 2e-9 * static_cast<double>(s.outputs * k) * static_cast<double>(j);
    const auto [m, n, depth] = part == Part::forward          ? std::array{s.outputs, j, k}
                               : part == Part::input_gradient ? std::array{k, j, s.outputs}
                                                              : std::array{s.outputs, k, j};
    a_ = filled({m, depth}), b_ = filled({depth, n}), c_ = empty({m, n}, DType::f32);
    product_workspace_ = bytes(kernels::matmul_workspace_bytes(m, n, depth, DType::f32));
    workspace_ =
        bytes(std::max({kernels::conv2d_workspace_bytes(s, DType::f32), kernels::conv2d_input_gradient_workspace_bytes(s, DType::f32),
                        kernels::conv2d_weight_gradient_workspace_bytes(s, DType::f32)}));
  }
  void convolve() const {
    if (part_ == Part::forward) kernels::conv2d(s_, x_, w_, {}, y_, workspace_);
    if (part_ == Part::input_gradient) kernels::conv2d_input_gradient(s_, y_, w_, {}, x_, workspace_);
    if (part_ == Part::weight_gradient) kernels::conv2d_weight_gradient(s_, x_, y_, w_, workspace_);
  }
  void multiply() const { kernels::matmul(a_, b_, {}, c_, product_workspace_); }
  double gigaflop = 0;

 private:
  ConvShape s_;
  Part part_;
  kernels::Pair at_;
  Tensor x_, w_, y_, a_, b_, c_, workspace_, product_workspace_;
};

void convolution(benchmark::State& state, const Layer& layer, Part part) {
  ThreadPool pool(kThreads);
  const Stream stream{Device::cpu(), &pool, &MemoryPool::heap()};
  StreamScope scope(stream);
  const Work work(layer.shape, part);
  double best = 1e9, ceiling = 1e9;
  for (auto _ : state) {
    const double elapsed = seconds([&] { work.convolve(); });
    state.SetIterationTime(elapsed);
    best = std::min(best, elapsed);
    ceiling = std::min(ceiling, seconds([&] { work.multiply(); }));
  }
  state.counters["gflops"] = work.gigaflop / best;
  state.counters["matmul"] = work.gigaflop / ceiling;
  state.counters["ratio"] = ceiling / best;
}

// Updates a weight like PyTorch's SGD: v = momentum v + g, w -= rate v.
void sgd(const Tensor& weight, const Tensor& velocity, const Tensor& gradient) {
  float *w = weight.data<float>(), *v = velocity.data<float>();
  const float* g = gradient.data<float>();
  Stream::current().for_ranges(weight.elems(), 1 << 16, [=](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) {
      v[i] = 0.9f * v[i] + g[i];
      w[i] -= 1e-3f * v[i];
    }
  });
}

void train(benchmark::State& state, const nn::Sequential& model, i64 images, i64 classes) {
  ThreadPool pool(kThreads);
  // The tensors of a step are allocated from one slab, as in the trainer.
  const Allocation slab = MemoryPool::heap().allocate(kGiB, "bench");
  Arena arena(slab.data(), kGiB);
  const Stream stream{Device::cpu(), &pool, &arena};
  StreamScope scope(stream);
  nn::EagerParameters weights(model);
  models::fill(model, models::ScratchWeights(1));
  std::vector<Tensor> velocity;
  for (const auto& p : model.parameters) velocity.push_back(zeros(p->shape, p->dtype));
  MicroBatch batch;
  batch.images_NCHW = filled({images, 3, 32, 32});
  batch.targets_BT = empty({images}, DType::int32);
  for (i64 i = 0; i < images; ++i) batch.targets_BT.data<i32>()[i] = static_cast<i32>(i * 7 % classes);
  for (auto _ : state) {
    const double elapsed = seconds([&] {
      autograd::Tape tape(&weights);
      nn::Context context;
      context.batch = &batch;
      context.tape = &tape;
      context.loss_factor = 1 / static_cast<double>(images);
      nn::run(model, context).backward();
      for (const auto& p : model.parameters) {
        if (!p->frozen) sgd(p->value(), velocity[p->id], weights.gradient(p->id));
      }
      weights.forget();
    });
    state.SetIterationTime(elapsed);
  }
  state.counters["images/s"] = benchmark::Counter(static_cast<double>(images * state.iterations()), benchmark::Counter::kIsRate);
}

benchmark::internal::Benchmark* add(const std::string& name, std::function<void(benchmark::State&)> run) {
  return benchmark::RegisterBenchmark(name.c_str(), std::move(run))->UseManualTime()->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  using namespace spillway;
  const std::pair<const char*, Part> parts[] = {
      {"/forward", Part::forward}, {"/input_gradient", Part::input_gradient}, {"/weight_gradient", Part::weight_gradient}};
  for (const Layer& layer : kLayers) {
    for (const auto& [name, part] : parts) {
      add(layer.name + std::string(name), [&layer, p = part](benchmark::State& s) { convolution(s, layer, p); })->MinTime(0.2);
    }
  }
  for (const i64 images : {4, 32, 512}) {
    add("cifar_net/train/" + std::to_string(images), [images](benchmark::State& s) {
      train(s, models::build(models::preset("cifar-net"), DType::f32), images, 10);
    })->MinTime(1);
  }
  add("resnet18/train/32", [](benchmark::State& s) {
    train(s, models::build_resnet(models::resnet18(), {3, 32, 32}, 1000, DType::f32), 32, 1000);
  })->MinTime(2);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
