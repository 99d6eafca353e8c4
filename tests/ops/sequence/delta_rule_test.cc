// Checks the gated delta rule against the recurrence written out in fp64, against central differences, against transformers, and against
// itself on documents that lie alone in their rows.
#include "ops/sequence/delta_rule.h"

#include "base/error.h"
#include "ops/dense.h"
#include "tests/support/gradient_check.h"
#include "tests/support/reference_file.h"

namespace spillway::delta_rule_test {
namespace {

using autograd::Tape;
using ops::DeltaRuleOptions;
using ops::Variable;

struct Case {
  i64 B, T, J, H, K, V;
  i64 columns() const { return 2 * J * K + H * V; }
};

// Inputs in the order of ops::delta_rule(): qkv, a, b, a_log, dt_bias.
std::vector<Tensor> inputs(const Case& c, DType dtype) {
  return {test::random({c.B, c.T, c.columns()}, dtype, 1), test::random({c.B, c.T, c.H}, dtype, 2), test::random({c.B, c.T, c.H}, dtype, 3),
          test::random({c.H}, dtype, 4, 0.7), test::random({c.H}, dtype, 5)};
}

DeltaRuleOptions options(const Case& c, const Tensor& positions = {}) {
  DeltaRuleOptions o;
  o.key_heads = c.J, o.key_elems = c.K, o.positions_BT = positions;
  return o;
}

Variable rule(const std::vector<Variable>& in, const DeltaRuleOptions& o) { return ops::delta_rule(in[0], in[1], in[2], in[3], in[4], o); }

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

// Returns the K elements of a row, normalized if it is wanted and multiplied by `factor`.
std::vector<double> key(const double* from, i64 elems, bool normalize, double factor) {
  double sum = 1e-6;
  for (i64 i = 0; i < elems; ++i) sum += from[i] * from[i];
  std::vector<double> all(from, from + elems);
  for (double& x : all) x *= factor * (normalize ? 1 / std::sqrt(sum) : 1);
  return all;
}

// The recurrence itself, position by position.
Tensor recurrence(const Case& c, const std::vector<Tensor>& in, const DeltaRuleOptions& o) {
  const Tensor out = empty({c.B, c.T, c.H * c.V}, DType::f64);
  const auto elems = static_cast<size_t>(c.K * c.V);
  for (i64 b = 0; b < c.B; ++b) {
    for (i64 h = 0; h < c.H; ++h) {
      std::vector<double> state(elems);
      for (i64 t = 0; t < c.T; ++t) {
        const i64 at = b * c.T + t, head = h / (c.H / c.J);
        if (o.positions_BT.defined() && o.positions_BT.data<i32>()[at] == 0) state.assign(elems, 0);
        const double* row = in[0].data<double>() + at * c.columns();
        const auto q = key(row + head * c.K, c.K, o.normalize, 1 / std::sqrt(static_cast<double>(c.K)));
        const auto k = key(row + (c.J + head) * c.K, c.K, o.normalize, 1);
        const double beta = 1 / (1 + std::exp(-test::at(in[2], at * c.H + h)));
        const double g = -std::exp(test::at(in[3], h)) * std::log1p(std::exp(test::at(in[1], at * c.H + h) + test::at(in[4], h)));
        for (double& s : state) s *= std::exp(g);
        for (i64 j = 0; j < c.V; ++j) {
          double known = 0, sum = 0;
          for (i64 i = 0; i < c.K; ++i) known += state[static_cast<size_t>(i * c.V + j)] * k[static_cast<size_t>(i)];
          const double added = beta * (row[2 * c.J * c.K + h * c.V + j] - known);
          for (i64 i = 0; i < c.K; ++i) {
            double& s = state[static_cast<size_t>(i * c.V + j)];
            s += k[static_cast<size_t>(i)] * added;
            sum += s * q[static_cast<size_t>(i)];
          }
          out.data<double>()[(at * c.H + h) * c.V + j] = sum;
        }
      }
    }
  }
  return out;
}

// Returns o and the gradients of qkv, a and b.
std::vector<Tensor> run(const std::vector<Tensor>& in, const Tensor& dout, const DeltaRuleOptions& o) {
  Tape tape;
  std::vector<Variable> leaves;
  for (size_t i = 0; i < in.size(); ++i) leaves.push_back(i < 3 ? tape.input(in[i]) : Variable(in[i]));
  const Variable out = rule(leaves, o);
  tape.backward(out, dout);
  return {out.value, tape.take_gradient(leaves[0]), tape.take_gradient(leaves[1]), tape.take_gradient(leaves[2])};
}

std::vector<i64> lengths_of(i64 T) { return T < 63 ? std::vector<i64>{T} : std::vector<i64>{1, 20, T - 23, 2}; }

TEST(DeltaRule, IsTheRecurrence) {
  const std::vector<Case> cases{{2, 1, 1, 2, 3, 5},   {1, 63, 3, 3, 5, 7},   {1, 64, 2, 4, 8, 16},
                                {2, 65, 5, 10, 3, 1}, {1, 70, 1, 1, 140, 9}, {1, 130, 2, 6, 17, 33}};
  for (const Case& c : cases) {
    for (const bool packed : {false, true}) {
      const auto in = inputs(c, DType::f64);
      const DeltaRuleOptions o = options(c, packed ? positions_of(c.B, lengths_of(c.T)) : Tensor());
      const Tensor want = recurrence(c, in, o);
      test::expect_near(rule({in.begin(), in.end()}, o).value, want, 1e-12, 1e-12, "f64, T = " + std::to_string(c.T));
    }
  }
}

TEST(DeltaRule, Gradients) {
  const std::vector<Case> some{{2, 1, 1, 2, 3, 2}, {1, 67, 1, 2, 2, 3}, {1, 130, 2, 2, 2, 1}};
  for (const Case& c : some) {
    for (const bool packed : {false, true}) {
      const DeltaRuleOptions o = options(c, packed ? positions_of(c.B, lengths_of(c.T)) : Tensor());
      SCOPED_TRACE(c.T);
      test::check_gradient(inputs(c, DType::f64), [&](const auto& in) { return rule(in, o); });
    }
  }
}

// Compares the rule and its last state with transformers (tests/data/make_delta_rule.py), in fp64 and, within f32's rounding, in f32. An
// element of a result in f32 is a sum of some hundred products of at most the largest magnitude, each off by a few half ulps.
TEST(DeltaRule, IsTransformersRule) {
  const test::ReferenceFile file("ops/delta_rule.safetensors");
  struct Named {
    const char* name;
    i64 J, K;
    bool normalize = true;
  };
  for (const Named& c : {Named{"one", 2, 3}, Named{"shared", 2, 4}, Named{"plain", 1, 5, false}}) {
    for (const DType dtype : {DType::f64, DType::f32}) {
      const std::string at = c.name + std::string("/");
      const double exact = dtype == DType::f64 ? 1e-12 : 2e-5;
      const std::vector<std::string> names{"qkv", "a", "b", "a_log", "dt_bias"};
      Tape tape;
      std::vector<Variable> in, constants;
      for (const auto& name : names) {
        in.push_back(tape.input(test::as(dtype, file.get(at + "in/" + name))));
        constants.emplace_back(in.back().value);
      }
      DeltaRuleOptions o;
      o.key_heads = c.J, o.key_elems = c.K, o.normalize = c.normalize;
      const Variable out = rule(in, o);
      test::expect_near(out.value, file.get(at + "o"), exact, exact, at + "o");
      tape.backward(out, test::as(dtype, file.get(at + "gout")));
      for (size_t i = 0; i < names.size(); ++i)
        test::expect_near(tape.take_gradient(in[i]), file.get(at + "grad/" + names[i]), 10 * exact, 10 * exact,
                          at + "gradient of " + names[i]);
      const Tensor state = file.get(at + "state");
      o.last_state_BHKV = empty(state.shape(), dtype);
      rule(constants, o);
      test::expect_near(o.last_state_BHKV, state, exact, exact, at + "state");
    }
  }
}

// Generation: a row in parts, each with the state that the part before left, is the row.
TEST(DeltaRule, GoesOnFromAState) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Case c{2, 100, 2, 6, 9, 5};
    const auto in = inputs(c, dtype);
    const Tensor whole = rule({in.begin(), in.end()}, options(c)).value;
    const double near = dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 2e-5 : 0.02;
    DeltaRuleOptions o = options(c);
    o.last_state_BHKV = empty({c.B, c.H, c.K, c.V}, wide_dtype(dtype));
    i64 begin = 0;
    for (const i64 length : {37, 1, 1, 61}) {
      const auto part = [&](const Tensor& t) { return ops::dense(t.slice(1, begin, begin + length)); };
      const Tensor out = rule({part(in[0]), part(in[1]), part(in[2]), in[3], in[4]}, o).value;
      test::expect_near(out, part(whole), near, 4 * near, std::string(to_string(dtype)) + " from " + std::to_string(begin));
      o.first_state_BHKV = o.last_state_BHKV;
      begin += length;
    }
  }
}

// 16-bit inputs are computed in f32: the results are those of f32, rounded.
TEST(DeltaRule, HalvesAreComputedInF32) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Case c{1, 70, 2, 4, 9, 5};
    const auto in = inputs(c, dtype);
    std::vector<Tensor> wide;
    for (const Tensor& t : in) wide.push_back(test::as(DType::f64, t));
    const Tensor dout = test::random({c.B, c.T, c.H * c.V}, dtype, 6);
    const auto got = run(in, dout, options(c)), exact = run(wide, test::as(DType::f64, dout), options(c));
    for (size_t i = 0; i < got.size(); ++i)
      test::expect_near(got[i], exact[i], 1.1 * test::half_ulp(dtype), 1e-5,
                        std::string(to_string(dtype)) + " result " + std::to_string(i));
  }
}

TEST(DeltaRule, SameBitsOnAnyThreads) {
  const Case c{2, 150, 5, 10, 7, 9};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto in = inputs(c, dtype);
    const Tensor dout = test::random({c.B, c.T, c.H * c.V}, dtype, 6);
    test::check_threads([&] { return run(in, dout, options(c, positions_of(c.B, lengths_of(c.T)))); });
  }
}

TEST(DeltaRule, RefusesWhatDoesNotFit) {
  const Case c{1, 4, 2, 4, 3, 5};
  auto in = inputs(c, DType::f32);
  DeltaRuleOptions o = options(c);
  o.key_heads = 3;
  EXPECT_THROW(rule({in.begin(), in.end()}, o), Error);
  o = options(c);
  o.positions_BT = test::ints({0, 1, 2}, {1, 3});
  EXPECT_THROW(rule({in.begin(), in.end()}, o), Error);
  in[1] = test::random({1, 3, 4}, DType::f32, 1);
  EXPECT_THROW(rule({in.begin(), in.end()}, options(c)), Error);
}

// A document's results do not depend on its neighbours, to the bit.
TEST(DeltaRule, DocumentsAreAlone) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const std::vector<i64> lengths{1, 70, 64, 130, 3, 129};
    const Case c{1, 397, 2, 6, 9, 5};
    const auto in = inputs(c, dtype);
    const Tensor dout = test::random({1, c.T, c.H * c.V}, dtype, 6);
    const auto whole = run(in, dout, options(c, positions_of(1, lengths)));
    i64 begin = 0;
    for (const i64 length : lengths) {
      const auto part = [&](const Tensor& t) { return ops::dense(t.slice(1, begin, begin + length)); };
      const auto alone = run({part(in[0]), part(in[1]), part(in[2]), in[3], in[4]}, part(dout), options(c));
      for (size_t i = 0; i < whole.size(); ++i)
        EXPECT_TRUE(test::same_bits(part(whole[i]), alone[i])) << to_string(dtype) << " result " << i << " at " << begin;
      begin += length;
    }
  }
}

}  // namespace
}  // namespace spillway::delta_rule_test
