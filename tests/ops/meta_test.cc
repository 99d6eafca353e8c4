// A plan learns a block's bytes from a run on the meta device: the same ops over an arena without memory must ask for the same pieces in
// the same order as the real run, on any number of threads.
#include "device/arena.h"
#include "device/memory_pool.h"
#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/shape.h"
#include "ops/swiglu.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway {
namespace {

using ops::Variable;
using ops::WeightLayout;

// A small transformer with every op a model uses, forward and backward; inputs that are given stay outside the arena.
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
  const Variable loss = ops::linear_cross_entropy(x, table, in.targets, 1, 30 * 100 * 4);
  loss.backward();
}

class Meta : public ::testing::TestWithParam<DType> {};

TEST_P(Meta, NeedsTheSameArenaAsTheRealRun) {
  Arena dry;
  {
    const Stream stream{Device::meta(), nullptr, &dry};
    const Inputs in = make_inputs(Device::meta(), GetParam());
    StreamScope scope(stream);
    run(in);
  }
  EXPECT_EQ(dry.used_bytes(), 0);
  const Inputs in = make_inputs(Device::cpu(), GetParam());
  for (int threads = 1; threads <= 3; ++threads) {
    Allocation slab = MemoryPool::heap().allocate(dry.peak_bytes(), "slab");
    Arena exact(slab.data(), dry.peak_bytes());
    ThreadPool pool(threads);
    const Stream stream{Device::cpu(), &pool, &exact};
    StreamScope scope(stream);
    run(in);  // one byte too few would throw
    EXPECT_EQ(exact.peak_bytes(), dry.peak_bytes()) << threads << " threads";
    EXPECT_EQ(exact.used_bytes(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Meta, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace spillway
