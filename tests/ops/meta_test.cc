// Tests the dry run on the meta device, from which the planner learns how many bytes a block needs. Ops over an
// arena without memory must request the same pieces in the same order as the real run, on any number of threads.
#include "device/arena.h"
#include "device/memory_pool.h"
#include "ops/elementwise/dropout.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/glu.h"
#include "ops/experts/experts.h"
#include "ops/images/batch_norm.h"
#include "ops/images/conv.h"
#include "ops/images/pool.h"
#include "ops/layout/shape.h"
#include "ops/losses/loss.h"
#include "ops/products/linear.h"
#include "ops/rows/norm.h"
#include "ops/sequence/attention.h"
#include "ops/sequence/embedding.h"
#include "ops/sequence/rope.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway::meta_test {
namespace {

using ops::Variable;
using ops::WeightLayout;

// Holds the inputs of a small transformer with every op that a model uses. They are allocated outside the arena.
struct Inputs {
  Tensor ids, targets, positions, table, gain, wide, square;
};

Inputs make_inputs(Device device, DType dtype) {
  static Arena unbounded;
  const Stream stream{device, nullptr, device.is_meta() ? static_cast<Allocator*>(&unbounded) : &MemoryPool::heap()};
  StreamScope scope(stream);
  Inputs in;
  in.ids = empty({2, 40}, DType::int32), in.targets = empty({2, 40}, DType::int32), in.positions = empty({2, 40}, DType::int32);
  in.table = empty({100, 24}, dtype), in.gain = empty({24}, dtype), in.wide = empty({72, 24}, dtype), in.square = empty({24, 24}, dtype);
  if (device.is_meta()) return in;
  for (const Tensor& t : {in.ids, in.targets, in.positions}) {
    for (i32 i = 0; i < 80; ++i) t.data<i32>()[i] = i % 40;
  }
  in.table = test::random(in.table.shape(), dtype, 1, 0.02), in.gain = test::random(in.gain.shape(), dtype, 2, 0.02);
  in.wide = test::random(in.wide.shape(), dtype, 3, 0.02), in.square = test::random(in.square.shape(), dtype, 4, 0.02);
  return in;
}

void run(const Inputs& in) {
  test::Sink sink;
  autograd::Tape tape(&sink);
  const Variable table = tape.parameter(in.table, 0), gain = tape.parameter(in.gain, 1), wide = tape.parameter(in.wide, 2),
                 square = tape.parameter(in.square, 3);
  ops::AttentionOptions options;
  options.scale = 0.3;
  options.dropout = 0.1;
  Variable x = ops::embedding(in.ids, table);
  x = ops::add(x, ops::attention_packed(ops::linear(ops::layer_norm(x, gain, gain, 1e-5), wide, {}, WeightLayout::out_in), 3, options));
  const std::vector<double> frequencies(4, 0.5);
  const Variable normal = ops::rms_norm(x, gain, 1e-6);
  const Variable heads = ops::rope(ops::reshape(normal, {2, 40, 3, 8}), in.positions, frequencies);
  x = ops::add(x, ops::reshape(ops::attention(heads, heads, heads, options), {2, 40, 24}));
  const Variable gate = ops::linear(normal, square, gain, WeightLayout::in_out);
  x = ops::add(x, ops::dropout(ops::swiglu(gate, ops::gelu_tanh(normal)), 0.1, {}, 0));
  const Variable loss = ops::linear_cross_entropy(x, table, in.targets, 1, {30 * 100 * 4});
  loss.backward();
}

// Holds the inputs of an image model with convolutions with strides, groups and
// a bias, both kinds of pooling, norms, a transposed convolution and a head.
struct ImageInputs {
  Tensor images, targets, first, second, gain, statistics, head;
};

ImageInputs make_images(Device device, DType dtype) {
  static Arena unbounded;
  const Stream stream{device, nullptr, device.is_meta() ? static_cast<Allocator*>(&unbounded) : &MemoryPool::heap()};
  StreamScope scope(stream);
  ImageInputs in;
  in.images = empty({5, 3, 19, 17}, dtype), in.targets = empty({5}, DType::int32), in.first = empty({60, 3, 3, 3}, dtype);
  in.second = empty({60, 30, 3, 3}, dtype), in.gain = empty({60}, dtype), in.statistics = empty({60}, dtype);
  in.head = empty({10, 60}, dtype);
  if (device.is_meta()) return in;
  for (i32 i = 0; i < 5; ++i) in.targets.data<i32>()[i] = i;
  in.images = test::random(in.images.shape(), dtype, 1), in.first = test::random(in.first.shape(), dtype, 2, 0.1);
  in.second = test::random(in.second.shape(), dtype, 3, 0.1), in.gain = test::random(in.gain.shape(), dtype, 4);
  in.statistics = zeros(in.statistics.shape(), in.statistics.dtype()), in.head = test::random(in.head.shape(), dtype, 5, 0.1);
  return in;
}

void run(const ImageInputs& in) {
  test::Sink sink;
  autograd::Tape tape(&sink);
  const Variable first = tape.parameter(in.first, 0), second = tape.parameter(in.second, 1), gain = tape.parameter(in.gain, 2),
                 head = tape.parameter(in.head, 3);
  Variable x = ops::conv2d(in.images, first, gain, {1, 1, 1, 1});
  x = ops::relu(ops::batch_norm2d(x, gain, gain, in.statistics, in.statistics, {}));
  x = ops::max_pool2d(x, 3, 2, 1);
  x = ops::add(x, ops::conv2d(x, second, {}, {1, 1, 1, 2}));
  x = ops::avg_pool2d(ops::conv2d(x, second, gain, {2, 1, 1, 2}), 2, 2);
  x = ops::conv_transpose2d(ops::group_norm(x, 6, gain, gain), second, {}, {{2, 1, 1, 2}, 1});
  x = ops::reshape(ops::adaptive_avg_pool2d(x, 1), {5, 60});
  ops::cross_entropy_sum(ops::linear(x, head, {}, WeightLayout::out_in), in.targets, 0.2).backward();
}

// Holds the inputs of a mixture of experts. The number of rows differs from expert to expert, and one expert has none.
struct ExpertInputs {
  Tensor x, router;
  std::vector<Tensor> up, down;
};

ExpertInputs make_experts(Device device, DType dtype) {
  static Arena unbounded;
  const Stream stream{device, nullptr, device.is_meta() ? static_cast<Allocator*>(&unbounded) : &MemoryPool::heap()};
  StreamScope scope(stream);
  constexpr u64 kExperts = 5;
  const auto filled = [&](const Shape& shape, u64 seed) {
    return device.is_meta() ? empty(shape, dtype) : test::random(shape, dtype, seed, 0.1);
  };
  ExpertInputs in{filled({300, 24}, 1), filled({kExperts, 24}, 2), {}, {}};
  for (u64 e = 0; e < kExperts; ++e) in.up.push_back(filled({100, 24}, 10 + e)), in.down.push_back(filled({24, 100}, 20 + e));
  return in;
}

void run(const ExpertInputs& in) {
  test::Sink sink;
  autograd::Tape tape(&sink);
  const Variable x = tape.input(in.x);
  const ops::Routed routed = ops::router(ops::linear(x, tape.parameter(in.router, 0), {}, WeightLayout::out_in), 2, {.normalised = true});
  const ops::ExpertRows rows = ops::expert_rows(routed.experts_NK, 5);
  std::vector<Variable> up, down;
  for (u32 e = 0; e < 5; ++e) up.push_back(tape.parameter(in.up[e], 1 + e)), down.push_back(tape.parameter(in.down[e], 6 + e));
  const Variable y = ops::expert_linear(ops::silu(ops::expert_linear(ops::to_experts(x, rows), {up.begin(), up.end()}, rows)),
                                        {down.begin(), down.end()}, rows);
  ops::cross_entropy_sum(ops::from_experts(y, routed.weights_NK, rows), zeros({300}, DType::int32), 1).backward();
}

class Meta : public ::testing::TestWithParam<DType> {};

// Compares a dry run with real runs. `make` returns the inputs on a device, and run() runs the ops on them.
template <class Make>
void expect_equal_arenas(Make make) {
  Arena dry;
  {
    const Stream stream{Device::meta(), nullptr, &dry};
    const auto in = make(Device::meta());
    StreamScope scope(stream);
    run(in);
  }
  EXPECT_EQ(dry.used_bytes(), 0);
  const auto in = make(Device::cpu());
  for (int threads = 1; threads <= 3; ++threads) {
    Allocation slab = MemoryPool::heap().allocate(dry.peak_bytes(), "slab");
    Arena exact(slab.data(), dry.peak_bytes());
    ThreadPool pool(threads);
    const Stream stream{Device::cpu(), &pool, &exact};
    StreamScope scope(stream);
    run(in);  // run() throws if it requests one byte more than planned, since the arena has exactly the planned size
    EXPECT_EQ(exact.peak_bytes(), dry.peak_bytes()) << threads << " threads";
    EXPECT_EQ(exact.used_bytes(), 0);
  }
}

TEST_P(Meta, NeedsTheSameArenaAsTheRealRun) {
  expect_equal_arenas([](Device device) { return make_inputs(device, GetParam()); });
}

TEST_P(Meta, ImagesToo) {
  expect_equal_arenas([](Device device) { return make_images(device, GetParam()); });
}

TEST_P(Meta, ExpertsToo) {
  expect_equal_arenas([](Device device) { return make_experts(device, GetParam()); });
}

INSTANTIATE_TEST_SUITE_P(Types, Meta, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace spillway::meta_test
