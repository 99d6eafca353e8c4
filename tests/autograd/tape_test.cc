// Tests the tape's promises with two toy ops: sum2 = a + b, which passes
// its gradient on unchanged, and times = a * b, which saves both operands.
#include "autograd/tape.h"

#include <map>

#include "autograd/kept_ops.h"
#include "base/error.h"
#include "device/memory_pool.h"
#include "kernels/accumulate.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway::tape_test {
namespace {

using autograd::Backward;
using autograd::KeptOps;
using autograd::Recorder;
using autograd::Tape;
using autograd::Variable;

Variable sum2(const Variable& a, const Variable& b) {
  const Tensor out = empty(a.shape(), DType::f64);
  kernels::add(a.value, b.value, out);
  Recorder r({a, b});
  return r.output(out, [](Backward& step) {
    if (step.needs(0)) step.pass(0, step.gradient());
    if (step.needs(1)) step.pass(1, step.gradient());
  });
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& out) {
  for (i64 i = 0; out.raw() && i < out.elems(); ++i) out.data<double>()[i] = a.data<double>()[i] * b.data<double>()[i];
}

Variable times(const Variable& a, const Variable& b) {
  const Tensor out = empty(a.shape(), DType::f64);
  multiply(a.value, b.value, out);
  Recorder r({a, b});
  const auto kept_a = r.save(a), kept_b = r.save(b);
  return r.output(out, [=](Backward& step) {
    if (step.needs(0)) multiply(step.gradient(), step.saved(kept_b), step.target(0));
    if (step.needs(1)) multiply(step.gradient(), step.saved(kept_a), step.target(1));
  });
}

Tensor values(std::vector<double> all) { return tensor_of<double>(all, {static_cast<i64>(all.size())}); }
std::vector<double> numbers(const Tensor& t) { return {t.span<double>().begin(), t.span<double>().end()}; }

using test::Sink;
using Doubles = std::vector<double>;

TEST(Tape, ProductRule) {
  Tape tape;
  const Variable a = tape.input(values({2, 3})), b = tape.input(values({5, 7}));
  tape.backward(times(a, b), values({1, 10}));
  EXPECT_EQ(numbers(tape.take_gradient(a)), (Doubles{5, 70}));
  EXPECT_EQ(numbers(tape.take_gradient(b)), (Doubles{2, 30}));
  EXPECT_FALSE(tape.take_gradient(a).defined()) << "taken once";
}

TEST(Tape, EagerBackwardSeedsOne) {
  Tape tape;
  const Variable a = tape.input(values({3}));
  times(a, a).backward();
  EXPECT_EQ(numbers(tape.take_gradient(a)), (Doubles{6}));
}

// In x + f(x) one gradient tensor is passed on to two tape slots. Adding f's part to one slot must not change the other.
TEST(Tape, ResidualNeverCorruptsWhatWasPassedOn) {
  Tape tape;
  const Variable x = tape.input(values({1, 2})), y = tape.input(values({10, 20}));
  const Variable joined = sum2(x, y);              // the gradient of `joined` reaches x and y as one tensor
  const Variable out = sum2(joined, times(x, x));  // adds 2x to x's gradient
  const Tensor dy = values({1, 1});
  tape.backward(out, dy);
  EXPECT_EQ(numbers(tape.take_gradient(x)), (Doubles{3, 5}));
  EXPECT_EQ(numbers(tape.take_gradient(y)), (Doubles{1, 1}));
  EXPECT_EQ(numbers(dy), (Doubles{1, 1})) << "the caller's gradient was written";
}

// Returns a * b. Its backward adds the gradient of `a` to the gradient that `a` has from other ops, and counts such additions in `joined`.
Variable times_onto(const Variable& a, const Variable& b, int& joined) {
  const Tensor out = empty(a.shape(), DType::f64);
  multiply(a.value, b.value, out);
  Recorder r({a, b});
  const auto kept_a = r.save(a), kept_b = r.save(b);
  return r.output(out, [=, &joined](Backward& step) {
    if (step.needs(0)) {
      const Tensor others = step.take_others(0), to = step.target(0);
      multiply(step.gradient(), step.saved(kept_b), to);
      for (i64 i = 0; others.defined() && i < to.elems(); ++i) to.data<double>()[i] += others.data<double>()[i];
      joined += others.defined();
    }
    if (step.needs(1)) multiply(step.gradient(), step.saved(kept_a), step.target(1));
  });
}

TEST(Tape, AnOpMayAddToWhatOthersGave) {
  for (const bool in_parts : {false, true}) {
    Sink sink;
    Tape tape(&sink);
    int joined = 0;
    const Variable x = tape.input(values({1, 2})), y = tape.input(values({10, 20})), w = tape.parameter(values({3, 4}), 0);
    const Variable more = sum2(times_onto(x, w, joined), times_onto(w, w, joined));
    const Variable both = sum2(x, y);  // one and the same gradient tensor reaches x and y, before other gradients do
    const Variable out = sum2(more, both);
    const Tensor dy = values({1, 1});
    if (in_parts) {
      tape.backward_input(out, dy);
      tape.backward_weight();
    } else {
      tape.backward(out, dy);
    }
    EXPECT_EQ(joined, 1) << "x's, not a parameter's, which stays in the sink's memory";
    EXPECT_EQ(numbers(tape.take_gradient(x)), (Doubles{4, 5}));
    EXPECT_EQ(numbers(tape.take_gradient(y)), (Doubles{1, 1}));
    EXPECT_EQ(numbers(dy), (Doubles{1, 1}));
    EXPECT_EQ(numbers(sink.gradients[std::pair<u32, u8>(0, 0)]), (Doubles{7, 10}));
  }
}

TEST(Tape, TheSameVariableTwiceInOneOp) {
  Tape tape;
  const Variable x = tape.input(values({4}));
  tape.backward(sum2(sum2(x, x), x));
  EXPECT_EQ(numbers(tape.take_gradient(x)), (Doubles{3}));
}

TEST(Tape, SeveralTapesLiveSideBySide) {
  Tape first, second;
  const Variable a = first.input(values({2})), b = second.input(values({3}));
  const Variable ya = times(a, a), yb = times(b, b);
  EXPECT_THROW(times(a, b), Error) << "one op cannot lie on two tapes";
  second.backward(yb);
  first.backward(ya);
  EXPECT_EQ(numbers(first.take_gradient(a)), (Doubles{4}));
  EXPECT_EQ(numbers(second.take_gradient(b)), (Doubles{6}));
  EXPECT_THROW(first.backward(yb), Error);
}

TEST(Tape, AParameterUsedTwiceIsHandedOverOnce) {
  Sink sink;
  Tape tape(&sink);
  const Tensor w = values({3});
  const Variable x = tape.input(values({2}));
  const Variable y = times(tape.parameter(w, 7), times(tape.parameter(w, 7), x));  // computes y = w^2 x
  // the parameter is used a second time; this use has number 1
  tape.backward(sum2(y, tape.parameter(w, 7, 1)));
  EXPECT_EQ(numbers(sink.gradients[std::pair<u32, u8>(7, 0)]), (Doubles{12}));
  EXPECT_EQ(numbers(sink.gradients[std::pair<u32, u8>(7, 1)]), (Doubles{1}));
  EXPECT_EQ(sink.finished, (std::map<std::pair<u32, u8>, int>{{{7, 0}, 1}, {{7, 1}, 1}}));
}

TEST(Tape, APassedGradientIsCopiedIntoTheSinksMemory) {
  Sink sink;
  Tape tape(&sink);
  const Tensor dy = values({5});
  tape.backward(sum2(tape.parameter(values({1}), 0), tape.parameter(values({2}), 1)), dy);
  EXPECT_EQ(numbers(sink.gradients[std::pair<u32, u8>(0, 0)]), (Doubles{5}));
  EXPECT_EQ(numbers(sink.gradients[std::pair<u32, u8>(1, 0)]), (Doubles{5}));
  const Tensor target = sink.gradients[std::pair<u32, u8>(0, 0)];
  EXPECT_NE(target.raw(), dy.raw());
}

// Activations and their gradients are bf16. The sink gets f32 gradients, added in f32, so that both terms, 1 and 2^-10, count.
TEST(Tape, AParameterOfBf16HasAWideGradient) {
  const auto pass_on = [](const Variable& a, const Variable& b) {
    Recorder r({a, b});
    return r.output(a.value, [](Backward& step) {
      for (const int i : {0, 1}) step.pass(i, step.gradient());
    });
  };
  const auto wide_gradient = [](const Variable& x, const Variable& w) {
    Recorder r({x, w});
    return r.output(x.value, [](Backward& step) {
      step.pass(0, step.gradient());
      const Tensor target = step.target(1);
      EXPECT_EQ(target.dtype(), DType::f32);
      *target.data<float>() = 0x1p-10F;
    });
  };
  const Tensor one = test::as(DType::bf16, values({1}));
  Sink sink;
  Tape tape(&sink);
  const Variable x = tape.input(one), w = tape.parameter(one, 0);
  tape.backward(wide_gradient(pass_on(x, w), w));
  EXPECT_EQ(tape.take_gradient(x).dtype(), DType::bf16);
  EXPECT_EQ(sink.gradients.at({0, 0}).dtype(), DType::f32);
  EXPECT_EQ(sink.gradients.at({0, 0}).item(), 1 + 0x1p-10);
}

TEST(Tape, ConstantsAreNotRecorded) {
  Tape tape;
  const Variable c = times(Variable(values({2})), Variable(values({3})));
  EXPECT_FALSE(c.needs_gradient());
  EXPECT_THROW(c.backward(), Error);
  const Variable x = tape.input(values({1}));
  const Variable unused = times(x, x);
  tape.backward(times(x, c));
  EXPECT_EQ(numbers(tape.take_gradient(x)), (Doubles{6}));
  (void)unused;
}

TEST(Tape, RefusesAGradientOfAnotherShape) {
  Tape tape;
  const Variable x = tape.input(values({1, 2}));
  EXPECT_THROW(tape.backward(times(x, x), values({1})), Error);
}

// For (x w)^2 + 7 x the weight part of the backward needs only the x that is multiplied by w and the gradient of x w.
TEST(TapeInParts, KeepsWhatTheWeightPartNeeds) {
  Sink sink;
  Tape tape(&sink);
  const Variable x = tape.input(values({1, 2})), w = tape.parameter(values({3, 5}), 0);
  const Variable product = times(x, w);  // the tape saves x; the parameter w does not count as saved
  const Variable y = sum2(times(product, product), times(x, values({7, 7})));
  EXPECT_EQ(tape.saved_bytes(), 16 * 5);
  tape.backward_input(y, values({1, 1}));
  EXPECT_EQ(tape.saved_bytes(), 16) << "x alone";
  EXPECT_TRUE(tape.has_weight_part());
  EXPECT_EQ(numbers(tape.take_gradient(x)), (Doubles{2 * 3 * 3 + 7, 2 * 10 * 5 + 7}));
  EXPECT_TRUE(sink.gradients.empty());
  EXPECT_THROW(tape.backward(y, values({1, 1})), Error) << "the weight part is still to come";
  tape.backward_weight();
  EXPECT_EQ(numbers(sink.gradients.at({0, 0})), (Doubles{2 * 3 * 1, 2 * 10 * 2}));
  EXPECT_EQ(sink.finished, (std::map<std::pair<u32, u8>, int>{{{0, 0}, 1}}));
  EXPECT_EQ(tape.saved_bytes(), 0);
  EXPECT_FALSE(tape.has_weight_part());
}

// The gradient of x + x w is passed on to x, where more is added, and is kept for w. The tensor kept for w must not change.
TEST(TapeInParts, AnInputsGradientDoesNotChangeWhatIsKept) {
  Sink sink;
  Tape tape(&sink);
  const Variable x = tape.input(values({2})), w = tape.parameter(values({3}), 0), v = tape.parameter(values({5}), 1);
  const Variable y = sum2(sum2(x, v), times(x, w));
  tape.backward_input(y, values({1}));
  EXPECT_EQ(numbers(tape.take_gradient(x)), (Doubles{4}));
  tape.backward_weight();
  EXPECT_EQ(numbers(sink.gradients.at({0, 0})), (Doubles{2}));
  EXPECT_EQ(numbers(sink.gradients.at({1, 0})), (Doubles{1}));
}

// If a parameter is used several times, the gradient of the last use is added first. In another order a 1 would be lost beside 1e17.
TEST(TapeInParts, UsesAreAddedInReverseOrderAndHandedOverOnce) {
  for (const bool in_parts : {false, true}) {
    Sink sink;
    Tape tape(&sink);
    const Variable w = tape.parameter(values({3}), 0);
    const Variable small = times(tape.input(values({1})), w), unused = times(small, w);  // no gradient flows through `unused`
    const Variable large = times(tape.input(values({1e17})), w), minus_large = times(tape.input(values({-1e17})), w);
    const Variable y = sum2(sum2(sum2(small, large), minus_large), tape.parameter(values({0.5}), 0, 1));
    in_parts ? tape.backward_input(y, values({1})) : tape.backward(y, values({1}));
    if (in_parts) tape.backward_weight();
    EXPECT_EQ(sink.finished, (std::map<std::pair<u32, u8>, int>{{{0, 0}, 1}, {{0, 1}, 1}}));
    EXPECT_EQ(numbers(sink.gradients.at({0, 0})), (Doubles{1}));
    EXPECT_EQ(numbers(sink.gradients.at({0, 1})), (Doubles{1}));
    (void)unused;
  }
}

TEST(TapeInParts, OpsAreToldWhichPartItIs) {
  Sink sink;
  Tape tape(&sink);
  std::vector<std::tuple<bool, bool, bool>> calls;
  const auto op = [&](const Variable& a, const Variable& b) {
    Recorder r({a, b});
    return r.output(a.value, [&](Backward& step) {
      calls.emplace_back(step.needs(0), step.needs(1), step.again());
      for (const int i : {0, 1}) {
        if (step.needs(i)) {
          step.pass(i, step.gradient());
        } else {
          EXPECT_THROW(step.target(i), Error);
        }
      }
    });
  };
  const Variable x = tape.input(values({1})), w = tape.parameter(values({2}), 0);
  const Variable first = op(x, w), second = op(w, w), y = op(first, second);
  tape.backward_input(y, values({1}));
  tape.backward_weight();
  EXPECT_EQ(calls, (std::vector<std::tuple<bool, bool, bool>>{
                       {true, true, false},   // the call for an op without parameters
                       {true, false, false},  // the call for the input part of x w
                       {true, true, false},   // the call for w w, in the weight part
                       {false, true, true},   // the call for the weight part of x w
                   }));
}

// Stores the tensors that are saved for backward outside the tape, as activation offloading does, so that the tape itself holds none.
struct Door final : autograd::SavedTensorDoor {
  std::map<u64, Tensor> rest;
  u64 next = 0;
  int unpacked = 0;
  u64 pack(Tensor saved) override {
    const Tensor copy = empty(saved.shape(), saved.dtype());
    kernels::copy(saved, copy);
    rest[next] = copy;
    return next++;
  }
  Tensor unpack(u64 packed) override {
    ++unpacked;
    const Tensor t = rest.at(packed);  // at() throws if the tape asks twice for one tensor
    rest.erase(packed);
    return t;
  }
};

TEST(SavedTensors, TheDoorIsTheOnlyHolder) {
  MemoryPool pool("activations", kUnlimited), elsewhere("spilled", kUnlimited);
  const Stream stream{Device::cpu(), nullptr, &pool};
  StreamScope scope(stream);
  Door door;
  Sink sink;
  {
    Tape tape(&sink, &door);
    Variable x = tape.input(values({1, 2, 3}));
    const Variable w = tape.parameter(values({2, 2, 2}), 0);
    Variable y = times(times(x, w), w);
    EXPECT_EQ(door.rest.size(), 2U) << "x and x w; the parameter stays where it is";
    EXPECT_EQ(tape.saved_bytes(), 48);
    const Tensor inner = x.value;
    x.value = {};
    EXPECT_EQ(inner.storage().use_count(), 1) << "someone besides the door holds a saved tensor";
    tape.backward(y, values({1, 1, 1}));
    EXPECT_EQ(tape.saved_bytes(), 0);
    EXPECT_EQ(numbers(tape.take_gradient(x)), (Doubles{4, 4, 4}));
  }
  EXPECT_EQ(numbers(sink.gradients.at({0, 0})), (Doubles{4, 8, 12}));  // the derivative of x w^2 with respect to w is 2 x w
  EXPECT_EQ(door.unpacked, 2);
  EXPECT_TRUE(door.rest.empty());
}

// A chain of squares saves one tensor per op. The tape must free each tensor as soon as the backward of its op has run.
TEST(SavedTensors, AreFreedAtLastUse) {
  constexpr i64 kElems = 1024, kBytes = kElems * 8;  // kBytes are whole pages, the unit in which the pool allocates
  MemoryPool pool("activations", kUnlimited);
  const Stream stream{Device::cpu(), nullptr, &pool};
  StreamScope scope(stream);
  std::vector<i64> used;
  const auto square = [&](const Variable& x) {
    const Tensor out = empty(x.shape(), DType::f64);
    multiply(x.value, x.value, out);
    Recorder r({x});
    const auto kept = r.save(x);
    return r.output(out, [=, &used, &pool](Backward& step) {
      used.push_back(pool.used_bytes());
      multiply(step.gradient(), step.saved(kept), step.target(0));
    });
  };
  Tape tape;
  Variable y = tape.input(zeros({kElems}, DType::f64));
  for (int i = 0; i < 4; ++i) y = square(y);
  const i64 before = pool.used_bytes();
  Tensor dy = zeros({kElems}, DType::f64);
  tape.backward(y, std::move(dy));
  // When an op's backward begins, its own gradient is alive, the previous gradient is not, and one saved tensor fewer is left.
  ASSERT_EQ(used.size(), 4U);
  for (size_t i = 0; i < used.size(); ++i) EXPECT_EQ(used[i], before + kBytes - static_cast<i64>(i) * kBytes);
  y = {};
  EXPECT_EQ(pool.used_bytes(), kBytes) << "only the input's gradient is left";
}

// backward() from one variable keeps the ops from which other live variables were computed, as the Python module needs for several losses
// over shared weights.
TEST(Tape, KeptOpsLeaveWhatOtherVariablesNeed) {
  Sink sink;
  Tape tape(&sink);
  const Variable w = tape.parameter(values({3}), 0), x = tape.input(values({5}));
  const Variable second = times(w, w);
  times(times(w, x), x);
  {
    const KeptOps keep({second.slot}, false);
    tape.backward(second, values({1}));
    EXPECT_FALSE(keep.left()) << "nothing that is alive needs an op";
  }
  EXPECT_EQ(numbers(sink.gradients.at({0, 0})), (Doubles{6}));
  EXPECT_EQ(tape.saved_bytes(), 0);
  const Variable again = times(w, x), third = times(again, again);
  {
    const KeptOps keep({again.slot, third.slot}, true);
    tape.backward(third, values({1}));
    tape.backward(third, values({1}));
    EXPECT_TRUE(keep.left());
  }
  EXPECT_EQ(numbers(sink.gradients.at({0, 0})), (Doubles{2 * 3 * 25.0}));
  EXPECT_EQ(sink.finished.at({0, 0}), 3) << "once for each backward";
  const KeptOps keep({again.slot}, false);
  tape.backward(third, values({1}));
  EXPECT_THROW(tape.backward(again, values({1})), Error) << "an op was released";
  EXPECT_FALSE(keep.left());
}

}  // namespace
}  // namespace spillway::tape_test
