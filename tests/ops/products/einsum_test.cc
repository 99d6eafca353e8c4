#include "ops/products/einsum.h"

#include "ops/products/linear.h"
#include "ops/products/matmul.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::einsum_test {
namespace {

Tensor random(const Shape& shape, u64 seed) { return test::random(shape, DType::f64, seed); }

struct Form {
  const char* equation;
  Shape a, b, out;
};
const Form kForms[] = {{"ij,jk->ik", {3, 5}, {5, 7}, {3, 7}},
                       {"ij,jk", {3, 5}, {5, 7}, {3, 7}},
                       {" b i , i c -> c b ", {3, 5}, {5, 7}, {7, 3}},
                       {"bhtd,bhsd->bhts", {2, 3, 5, 4}, {2, 3, 7, 4}, {2, 3, 5, 7}},
                       {"bthd,bshd->bhts", {2, 5, 3, 4}, {2, 7, 3, 4}, {2, 3, 5, 7}},
                       {"i,j->ij", {3}, {5}, {3, 5}},
                       {"i,i->", {5}, {5}, {}},
                       {"i,i->i", {5}, {5}, {5}},
                       {"abc,cd->d", {2, 3, 5}, {5, 7}, {7}},  // the op first sums over a and b, which occur in no other operand
                       {"ab,cd->da", {2, 3}, {5, 7}, {7, 2}},  // the operands have no letter in common
                       {",ij->ji", {}, {3, 5}, {5, 3}},        // an operand may be a scalar
                       {"Ab,bA->A", {3, 5}, {5, 3}, {3}},
                       {"abcd,dcbe->eab", {2, 3, 4, 5}, {5, 4, 3, 2}, {2, 2, 3}}};

// Computes an einsum by its definition: a loop over the indices of all letters.
Tensor by_loops(const Form& f, const Tensor& a, const Tensor& b) {
  std::string letters[3];  // the letters of the operands a and b and of the result
  int part = 0;
  bool given = false;
  for (const char* at = f.equation; *at; ++at) {
    if (*at == ',') ++part;
    if (*at == '>') part = 2, given = true;
    if (std::isalpha(*at)) letters[part] += *at;
  }
  if (!given) letters[2] = "ik";
  std::map<char, i64> extent;
  for (size_t i = 0; i < letters[0].size(); ++i) extent[letters[0][i]] = a.size(static_cast<int>(i));
  for (size_t i = 0; i < letters[1].size(); ++i) extent[letters[1][i]] = b.size(static_cast<int>(i));
  i64 all = 1;
  for (const auto& [letter, n] : extent) all *= n;
  const Tensor out = zeros(f.out, DType::f64);
  for (i64 i = 0; i < all; ++i) {
    std::map<char, i64> at;
    i64 rest = i;
    for (const auto& [letter, n] : extent) at[letter] = rest % n, rest /= n;
    const auto place = [&](const std::string& names) {
      i64 p = 0;
      for (const char letter : names) p = p * extent[letter] + at[letter];
      return p;
    };
    out.data<double>()[place(letters[2])] += test::at(a, place(letters[0])) * test::at(b, place(letters[1]));
  }
  return out;
}

TEST(Einsum, IsItsDefinition) {
  for (const Form& f : kForms) {
    SCOPED_TRACE(f.equation);
    const Tensor a = random(f.a, 1), b = random(f.b, 2);
    const auto sum = [&](const auto& in) { return ops::einsum(f.equation, in[0], in[1]); };
    test::expect_near(ops::einsum(f.equation, a, b).value, by_loops(f, a, b), 1e-13, 1e-13, f.equation);
    test::check_gradient({random(f.a, 1), random(f.b, 2)}, sum);
    test::check_views({a, b}, sum);
  }
}

TEST(Einsum, OfMatricesIsTheirProduct) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor a = test::random({3, 5, 7}, dtype, 1), b = test::random({3, 7, 4}, dtype, 2);
    EXPECT_TRUE(test::same_bits(ops::einsum("bij,bjk->bik", a, b).value, ops::matmul(a, b).value));
  }
}

TEST(Einsum, RefusesAndSaysWhere) {
  const Tensor a = random({2, 3}, 1), b = random({3, 4}, 2);
  const auto refusal = [&](const char* equation) { return test::refusal([&] { ops::einsum(equation, a, b); }); };
  const std::string hint = "; two inputs are written as in \"bij,bjk->bik\"";
  EXPECT_EQ(refusal("ij->ji"), "[einsum] expected a comma and a second input at position 2 of \"ij->ji\"" + hint);
  EXPECT_EQ(refusal("ij,jk,kl->il"), "[einsum] expected exactly two inputs, not a third one, at position 5 of \"ij,jk,kl->il\"" + hint);
  EXPECT_EQ(refusal("ii,ij->j"), "[einsum] expected each letter of a once, not 'i' again, at position 1 of \"ii,ij->j\"" + hint);
  EXPECT_EQ(refusal("ij,jk->ii"), "[einsum] expected each letter of the result once, not 'i' again, at position 8 of \"ij,jk->ii\"" + hint);
  EXPECT_EQ(refusal("ij,jk->iz"), "[einsum] expected letters of the inputs, not 'z', at position 8 of \"ij,jk->iz\"" + hint);
  EXPECT_EQ(refusal("..j,jk"), "[einsum] expected a comma and a second input at position 0 of \"..j,jk\"" + hint);
  EXPECT_EQ(refusal("...j...,jk"), "[einsum] expected each letter of a once, not '.' again, at position 4 of \"...j...,jk\"" + hint);
  EXPECT_EQ(refusal("ij,jk->...ik"),
            "[einsum] expected \"...\" in an input because the result has \"...\", at position 12 of \"ij,jk->...ik\"" + hint);
  EXPECT_EQ(refusal("ij,jk=ik"), "[einsum] expected a letter, a comma or \"->\" at position 5 of \"ij,jk=ik\"" + hint);
  EXPECT_EQ(refusal("ij,jk->ik,"), "[einsum] expected a letter or the end at position 9 of \"ij,jk->ik,\"" + hint);
  EXPECT_EQ(refusal("ijk,jk->i"),
            "[einsum] expected inputs of the same dtype with one axis for each letter of ijk and of jk, got f64 [2, 3] and f64 [3, 4]");
  EXPECT_EQ(refusal("...i,...->i"), "[einsum] expected axes in \"...\" that broadcast, got f64 [2, 3] and f64 [3, 4]");
  EXPECT_EQ(refusal("ij,ik->jk"), "[einsum] expected the same extent in both inputs for 'i', got f64 [2, 3] and f64 [3, 4]");
}

}  // namespace
}  // namespace spillway::einsum_test
