// Tests anomaly detection: if an op is made to give a non-finite value, forward or backward, the report names that op.
#include "autograd/anomaly.h"

#include <cmath>
#include <limits>

#include "autograd/no_grad.h"
#include "base/error.h"
#include "kernels/accumulate.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway::anomaly_test {
namespace {

using autograd::AnomalyGuard;
using autograd::Backward;
using autograd::Recorder;
using autograd::Tape;
using autograd::Variable;

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

// Returns a copy of x in which one element is replaced. In the backward, one element of the gradient is replaced.
Variable planted(const Variable& x, double forward, double backward, i64 element = 1) {
  const auto copy = [element](const Tensor& from, const Tensor& to, double value) {
    kernels::copy(from, to);
    if (value != 0) to.data<double>()[element] = value;
  };
  const Tensor y = empty(x.shape(), DType::f64);
  copy(x.value, y, forward);
  Recorder r({x});
  const auto kept = r.save(x);
  return r.output(y, [=](Backward& b) {
    static_cast<void>(b.saved(kept));
    copy(b.gradient(), b.target(0), backward);
  });
}

Variable healthy(const Variable& x) { return planted(x, 0, 0); }

Tensor values(std::vector<double> all) { return tensor_of<double>(all, {2, static_cast<i64>(all.size()) / 2}); }

// Returns the message of the error that `f` throws, or "" if it throws none.
template <class F>
std::string report_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::numbers);
    return error.what();
  }
  return "";
}

void expect_all(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Anomaly, TheOpOfForwardIsNamedWithItsInputs) {
  const AnomalyGuard guard({.where = "step 7"});
  Tape tape;
  const Variable x = tape.input(values({1, 2, 3, -4}));
  const std::string report = report_of([&] { healthy(planted(healthy(x), kNaN, 0, 2)); });
  expect_all(report,
             {"[anomaly] step 7: the forward of planted is the first whose result is not finite",
              "\n  its result: f64 [2, 2], 1 NaN and 0 infinite of 4 elements, the first at [1, 0]; the finite elements from -4 to 2",
              "\n  its input 0: f64 [2, 2], all finite, from -4 to 3"});
}

TEST(Anomaly, AConstantIsReadToo) {
  const AnomalyGuard guard;
  expect_all(report_of([&] { planted(values({1, 2}), kInfinity, 0); }), {"the forward of planted", "0 NaN and 1 infinite"});
  const autograd::NoGrad no_grad;
  expect_all(report_of([&] { planted(values({1, 2}), kInfinity, 0); }), {"the forward of planted"});
}

TEST(Anomaly, TheOpOfBackwardIsNamedWithWhatItWasMadeOf) {
  const AnomalyGuard guard;
  for (const bool parts : {false, true}) {
    Tape tape;
    const Variable x = tape.input(values({1, 2, 3, -4}));
    const Variable y = healthy(planted(healthy(x), 0, kInfinity, 3));
    const std::string report = report_of([&] {
      parts ? tape.backward_input(y, values({5, 6, 7, 8})) : tape.backward(y, values({5, 6, 7, 8}));
    });
    expect_all(report, {"[anomaly] the backward of planted is",
                        "gradient of its input 0: f64 [2, 2], 0 NaN and 1 infinite of 4 elements, the first at [1, 1]",
                        "gradient of its output: f64 [2, 2], all finite, from 5 to 8",
                        "tensor 0 that forward saved: f64 [2, 2], all finite, from -4 to 3"});
  }
}

TEST(Anomaly, AParametersGradientIsReadInEitherPart) {
  const AnomalyGuard guard;
  for (const bool parts : {false, true}) {
    test::Sink sink;
    Tape tape(&sink);
    const Variable y = planted(tape.parameter(values({1, 2}), 3), 0, kNaN, 0);
    const std::string before = report_of([&] {
      if (parts) tape.backward_input(y, values({1, 1}));
    });
    EXPECT_EQ(before, "");
    expect_all(report_of([&] { parts ? tape.backward_weight() : tape.backward(y, values({1, 1})); }), {"the backward of planted"});
  }
}

TEST(Anomaly, TheLayerIsThatOfTheParameterThatIsRead) {
  AnomalyGuard guard;
  Tape tape;
  const Variable w = Tape::frozen(values({1, 2})), v = Tape::frozen(values({1, 2}));
  guard.name(*w.value.storage(), "layers.0.up.weight");
  guard.name(*v.value.storage(), "layers.0.down.weight");
  expect_all(report_of([&] { planted(w, kNaN, 0); }), {"forward of planted in layers.0.up is", "its input 0, layers.0.up.weight:"});
  const Variable between = healthy(w);
  expect_all(report_of([&] { planted(between, kNaN, 0); }), {"forward of planted after layers.0.up is"});
  const Variable x = tape.input(values({1, 2}));
  healthy(v);
  const Variable y = planted(x, 0, kNaN);
  expect_all(report_of([&] { tape.backward(y, values({1, 1})); }), {"backward of planted after layers.0.down is"});
}

// Some infinities are no anomaly: those of a mask, those that an op was told to write, and those that a loss scale causes in the backward.
TEST(Anomaly, WhatIsExpectedIsNone) {
  const AnomalyGuard guard;
  EXPECT_EQ(report_of([&] { healthy(values({-kInfinity, 2})); }), "") << "a mask";
  EXPECT_NE(report_of([&] { healthy(values({kNaN, -kInfinity})); }), "");
  EXPECT_NE(report_of([&] { healthy(Tape::frozen(values({-kInfinity, 2}))); }), "") << "a parameter";
  Recorder told({Variable(values({1, 2}))});
  told.expect_infinities();
  EXPECT_EQ(report_of([&] { told.output(values({1, kInfinity}), {}); }), "");
  EXPECT_NE(report_of([&] { told.output(values({1, kNaN}), {}); }), "");
  const AnomalyGuard forward_only({.where = "", .backward = false});
  Tape tape;
  EXPECT_EQ(report_of([&] { tape.backward(planted(tape.input(values({1, 2})), 0, kInfinity), values({1, 1})); }), "");
}

TEST(Anomaly, OutsideNothingIsRead) {
  EXPECT_EQ(AnomalyGuard::current(), nullptr);
  EXPECT_EQ(report_of([&] { planted(values({1, 2}), kNaN, 0); }), "");
  {
    const AnomalyGuard outer;
    { const AnomalyGuard inner; }
    EXPECT_EQ(AnomalyGuard::current(), &outer);
  }
  EXPECT_EQ(AnomalyGuard::current(), nullptr);
}

template <class T>
T as(double x) {
  return narrow<T>(static_cast<Wide<T>>(x));
}

// Puts a bad value at each place of tensors of several sizes and checks that it is found. The largest finite number must not be found.
template <class T>
void expect_each_place_is_read(double largest) {
  const auto ends_at = [](i64 elems, i64 at, double value) {
    std::vector<T> all(static_cast<size_t>(elems), as<T>(1));
    all[static_cast<size_t>(at)] = as<T>(value);
    AnomalyGuard guard;
    const Variable parameter = Tape::frozen(tensor_of<T>(all, {elems}));
    return !report_of([&] { Recorder({Variable()}).output(parameter.value, {}); }).empty();
  };
  for (const double value : {kInfinity, -kInfinity, kNaN}) {
    for (const i64 at : {0, 1, 31, 65535, 65536, 70000}) EXPECT_TRUE(ends_at(70001, at, value)) << value << " at " << at;
  }
  for (const double value : {largest, -largest, 0.0, 1e-300}) EXPECT_FALSE(ends_at(70001, 65537, value)) << value;
}

TEST(Anomaly, EveryTypeIsReadEverywhere) {
  expect_each_place_is_read<double>(std::numeric_limits<double>::max());
  expect_each_place_is_read<float>(std::numeric_limits<float>::max());
  expect_each_place_is_read<BFloat16>(0x1.fep127);
  expect_each_place_is_read<Float16>(65504);
}

}  // namespace
}  // namespace spillway::anomaly_test
