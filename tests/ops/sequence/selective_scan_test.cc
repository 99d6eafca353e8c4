// Checks the scan of Mamba 2 against the recurrence written out in fp64, against central differences, and against itself on documents that
// lie alone in their rows.
#include "ops/sequence/selective_scan.h"

#include "base/error.h"
#include "ops/dense.h"
#include "ops/rows/gated_norm.h"
#include "tests/support/gradient_check.h"
#include "tests/support/reference_file.h"

namespace spillway::selective_scan_test {
namespace {

using autograd::Tape;
using ops::SelectiveScanOptions;
using ops::Variable;

struct Case {
  i64 B, T, H, P, G, N;
  i64 columns() const { return H * P + 2 * G * N; }
};

// Inputs in the order of ops::selective_scan(): xbc, dt, a_log, dt_bias, d.
std::vector<Tensor> inputs(const Case& c, DType dtype) {
  return {test::random({c.B, c.T, c.columns()}, dtype, 1), test::random({c.B, c.T, c.H}, dtype, 2), test::random({c.H}, dtype, 3, 0.7),
          test::random({c.H}, dtype, 4), test::random({c.H}, dtype, 5)};
}

SelectiveScanOptions options(const Case& c, const Tensor& positions = {}) {
  SelectiveScanOptions o;
  o.groups = c.G, o.state = c.N, o.positions_BT = positions;
  return o;
}

Variable scan(const std::vector<Variable>& in, const SelectiveScanOptions& o) {
  return ops::selective_scan(in[0], in[1], in[2], in[3], in[4], o);
}

// Returns positions of documents of these lengths, which fill each row of the batch.
Tensor positions_of(i64 batch, const std::vector<i64>& lengths) {
  std::vector<i32> values;
  for (i64 b = 0; b < batch; ++b) {
    for (const i64 length : lengths) {
      for (i64 t = 0; t < length; ++t) values.push_back(static_cast<i32>(t));
    }
  }
  return test::ints(values, {batch, std::ssize(values) / batch});
}

// The recurrence itself, position by position.
Tensor recurrence(const Case& c, const std::vector<Tensor>& in, const SelectiveScanOptions& o) {
  const Tensor y = empty({c.B, c.T, c.H * c.P}, DType::f64);
  std::vector<double> state(static_cast<size_t>(c.N * c.P));
  const double* xbc = in[0].data<double>();
  for (i64 b = 0; b < c.B; ++b) {
    for (i64 h = 0; h < c.H; ++h) {
      std::fill(state.begin(), state.end(), 0);
      for (i64 t = 0; t < c.T; ++t) {
        if (o.positions_BT.defined() && o.positions_BT.data<i32>()[b * c.T + t] == 0) std::fill(state.begin(), state.end(), 0);
        const double* x = xbc + (b * c.T + t) * c.columns() + h * c.P;
        const double* of_b = xbc + (b * c.T + t) * c.columns() + c.H * c.P + h / (c.H / c.G) * c.N;
        const double raw = test::at(in[1], (b * c.T + t) * c.H + h) + test::at(in[3], h);
        const double dt = std::clamp(std::log1p(std::exp(raw)), o.smallest_dt, o.largest_dt);
        const double kept = std::exp(-dt * std::exp(test::at(in[2], h)));
        for (i64 p = 0; p < c.P; ++p) {
          double sum = test::at(in[4], h) * x[p];
          for (i64 n = 0; n < c.N; ++n) {
            double& s = state[static_cast<size_t>(n * c.P + p)];
            s = kept * s + dt * of_b[n] * x[p];
            sum += s * of_b[c.G * c.N + n];
          }
          y.data<double>()[((b * c.T + t) * c.H + h) * c.P + p] = sum;
        }
      }
    }
  }
  return y;
}

// Returns y and the gradients of xbc and dt.
std::vector<Tensor> run(const std::vector<Tensor>& in, const Tensor& dy, const SelectiveScanOptions& o) {
  Tape tape;
  std::vector<Variable> leaves;
  for (size_t i = 0; i < in.size(); ++i) leaves.push_back(i < 2 ? tape.input(in[i]) : Variable(in[i]));
  const Variable y = scan(leaves, o);
  tape.backward(y, dy);
  return {y.value, tape.take_gradient(leaves[0]), tape.take_gradient(leaves[1])};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {2, 1, 2, 3, 1, 5}, {1, 63, 3, 5, 1, 7}, {1, 64, 4, 8, 2, 16}, {2, 65, 10, 3, 2, 1}, {1, 130, 6, 17, 1, 33}};
  return all;
}

std::vector<i64> lengths_of(i64 T) { return T < 63 ? std::vector<i64>{T} : std::vector<i64>{1, 20, T - 23, 2}; }

TEST(SelectiveScan, IsTheRecurrence) {
  for (const Case& c : cases()) {
    for (const bool packed : {false, true}) {
      const auto in = inputs(c, DType::f64);
      const SelectiveScanOptions o = options(c, packed ? positions_of(c.B, lengths_of(c.T)) : Tensor());
      const Tensor want = recurrence(c, in, o);
      test::expect_near(scan({in.begin(), in.end()}, o).value, want, 1e-12, 1e-12, "f64, T = " + std::to_string(c.T));
    }
  }
}

TEST(SelectiveScan, Gradients) {
  const std::vector<Case> some{{2, 1, 2, 3, 1, 2}, {1, 67, 3, 2, 1, 3}, {1, 130, 4, 1, 2, 2}};
  for (const Case& c : some) {
    for (const bool packed : {false, true}) {
      SelectiveScanOptions o = options(c, packed ? positions_of(c.B, lengths_of(c.T)) : Tensor());
      o.smallest_dt = 0.2, o.largest_dt = 1.9;
      SCOPED_TRACE(c.T);
      test::check_gradient(inputs(c, DType::f64), [&](const auto& in) { return scan(in, o); });
    }
  }
}

// Compares the scan, its last state and the gated norm behind it with transformers (tests/data/make_selective_scan.py).
TEST(SelectiveScan, IsTransformersScan) {
  const test::ReferenceFile file("ops/selective_scan.safetensors");
  struct Named {
    const char* name;
    i64 G, N;
    double smallest = 0, largest = std::numeric_limits<double>::infinity();
  };
  for (const Named& c : {Named{"one", 2, 3}, Named{"groups", 2, 3}, Named{"limits", 1, 3, 0.3, 1.5}}) {
    const std::string at = c.name + std::string("/");
    const std::vector<std::string> names{"xbc", "dt", "a_log", "dt_bias", "d", "gate", "gamma"};
    Tape tape;
    std::vector<Variable> in;
    for (const auto& name : names) in.push_back(tape.input(test::as(DType::f64, file.get(at + "in/" + name))));
    SelectiveScanOptions o;
    o.groups = c.G, o.state = c.N, o.smallest_dt = c.smallest, o.largest_dt = c.largest;
    const Variable y = scan(in, o), out = ops::gated_rms_norm(y, in[5], in[6], 1e-5, c.G);
    test::expect_near(y.value, file.get(at + "y"), 1e-12, 1e-12, at + "y");
    test::expect_near(out.value, file.get(at + "out"), 1e-12, 1e-12, at + "out");
    tape.backward(out, file.get(at + "gout"));
    for (size_t i = 0; i < names.size(); ++i)
      test::expect_near(tape.take_gradient(in[i]), file.get(at + "grad/" + names[i]), 1e-10, 1e-11, at + "gradient of " + names[i]);
    const Tensor state = file.get(at + "state");
    o.last_state_BHNP = empty(state.shape(), DType::f64);
    std::vector<Variable> constants;
    for (const Variable& v : in) constants.emplace_back(v.value);
    scan(constants, o);
    test::expect_near(o.last_state_BHNP, state, 1e-12, 1e-12, at + "state");
  }
}

// Generation: a row in parts, each with the state that the part before left, is the row.
TEST(SelectiveScan, GoesOnFromAState) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Case c{2, 100, 6, 5, 2, 9};
    const auto in = inputs(c, dtype);
    const Tensor whole = scan({in.begin(), in.end()}, options(c)).value;
    const double near = dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 2e-5 : 0.02;
    SelectiveScanOptions o = options(c);
    o.last_state_BHNP = empty({c.B, c.H, c.N, c.P}, wide_dtype(dtype));
    i64 begin = 0;
    for (const i64 length : {37, 1, 1, 61}) {
      const auto part = [&](const Tensor& t) { return ops::dense(t.slice(1, begin, begin + length)); };
      const Tensor y = scan({part(in[0]), part(in[1]), in[2], in[3], in[4]}, o).value;
      test::expect_near(y, part(whole), near, 4 * near, std::string(to_string(dtype)) + " from " + std::to_string(begin));
      o.first_state_BHNP = o.last_state_BHNP;
      begin += length;
    }
  }
}

// A row that begins with position 0 begins a document: the state that is given does not count.
TEST(SelectiveScan, ForgetsAStateBeforeADocument) {
  const Case c{2, 5, 4, 3, 2, 5};
  const auto in = inputs(c, DType::f64);
  SelectiveScanOptions o = options(c, test::ints({0, 1, 2, 3, 4, 7, 8, 9, 0, 1}, {2, 5}));
  const Tensor without = scan({in.begin(), in.end()}, o).value;
  o.first_state_BHNP = test::random({c.B, c.H, c.N, c.P}, DType::f64, 8);
  const Tensor with = scan({in.begin(), in.end()}, o).value;
  EXPECT_TRUE(test::same_bits(ops::dense(with.slice(0, 0, 1)), ops::dense(without.slice(0, 0, 1))));
  EXPECT_FALSE(test::same_bits(ops::dense(with.slice(0, 1, 2)), ops::dense(without.slice(0, 1, 2))));
}

TEST(SelectiveScan, SameBitsOnAnyThreads) {
  const Case c{2, 150, 10, 7, 2, 9};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto in = inputs(c, dtype);
    const Tensor dy = test::random({c.B, c.T, c.H * c.P}, dtype, 6);
    test::check_threads([&] { return run(in, dy, options(c, positions_of(c.B, lengths_of(c.T)))); });
  }
}

TEST(SelectiveScan, RefusesWhatDoesNotFit) {
  const Case c{1, 4, 4, 3, 2, 5};
  auto in = inputs(c, DType::f32);
  SelectiveScanOptions o = options(c);
  o.groups = 3;
  EXPECT_THROW(scan({in.begin(), in.end()}, o), Error);
  o = options(c);
  o.positions_BT = test::ints({0, 1, 2}, {1, 3});
  EXPECT_THROW(scan({in.begin(), in.end()}, o), Error);
  in[1] = test::random({1, 3, 4}, DType::f32, 1);
  EXPECT_THROW(scan({in.begin(), in.end()}, options(c)), Error);
}

// A document's results do not depend on its neighbours, to the bit.
TEST(SelectiveScan, DocumentsAreAlone) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const std::vector<i64> lengths{1, 70, 64, 130, 3, 129};
    const Case c{1, 397, 6, 5, 2, 9};
    const auto in = inputs(c, dtype);
    const Tensor dy = test::random({1, c.T, c.H * c.P}, dtype, 6);
    const auto whole = run(in, dy, options(c, positions_of(1, lengths)));
    i64 begin = 0;
    for (const i64 length : lengths) {
      const auto part = [&](const Tensor& t) { return ops::dense(t.slice(1, begin, begin + length)); };
      const auto alone = run({part(in[0]), part(in[1]), in[2], in[3], in[4]}, part(dy), options(c));
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(test::same_bits(part(whole[i]), alone[i])) << to_string(dtype) << " result " << i << " at " << begin;
      begin += length;
    }
  }
}

}  // namespace
}  // namespace spillway::selective_scan_test
