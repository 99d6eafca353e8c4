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

namespace spillway {
namespace {

using ops::Variable;
using ops::WeightLayout;

// A small transformer with every op a model uses, forward and backward; inputs that are given stay outside the arena.
struct Inputs {
  Tensor ids, targets, positions, table, gain, wide, square;
};

Inputs make_inputs(Device device) {
  static Arena unbounded;
  const Stream stream{device, nullptr, device.is_meta() ? static_cast<Allocator*>(&unbounded) : &MemoryPool::heap()};
  StreamScope scope(stream);
  Inputs in;
  in.ids = empty({2, 40}, DType::int32), in.targets = empty({2, 40}, DType::int32), in.positions = empty({2, 40}, DType::int32);
  in.table = empty({100, 24}, DType::f32), in.gain = empty({24}, DType::f32), in.wide = empty({72, 24}, DType::f32),
  in.square = empty({24, 24}, DType::f32);
  if (device.is_meta()) return in;
  for (const Tensor& t : {in.ids, in.targets, in.positions}) {
    for (i32 i = 0; i < 80; ++i) t.data<i32>()[i] = i % 40;
  }
  for (const Tensor& t : {in.table, in.gain, in.wide, in.square}) {
    for (i64 i = 0; i < t.elems(); ++i) t.data<float>()[i] = 0.01F * static_cast<float>(i % 7 - 3);
  }
  return in;
}

void run(const Inputs& in) {
  autograd::Tape tape;
  const Variable table = tape.input(in.table), gain = tape.input(in.gain), wide = tape.input(in.wide), square = tape.input(in.square);
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

TEST(Meta, NeedsTheSameArenaAsTheRealRun) {
  Arena dry;
  {
    const Stream stream{Device::meta(), nullptr, &dry};
    const Inputs in = make_inputs(Device::meta());
    StreamScope scope(stream);
    run(in);
  }
  EXPECT_EQ(dry.used_bytes(), 0);
  const Inputs in = make_inputs(Device::cpu());
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

}  // namespace
}  // namespace spillway
