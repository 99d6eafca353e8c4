// Provides the tests of loaders with sources whose tokens tell where they come from, and with access to the rows of a step.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "data/tokens/token_source.h"
#include "tensor/batch.h"

namespace spillway::data::loader_test {

// Serves tokens: the token at position i has the value base + i. If source s has base 1000 s, every token tells its source.
class Counting final : public TokenSource {
 public:
  Counting(i32 base, i64 tokens) : base_(base), tokens_(tokens) {}
  const std::string& name() const override { return name_; }
  i64 tokens() const override { return tokens_; }
  void read(i64 begin, std::span<i32> out) const override {
    ASSERT_LE(begin + static_cast<i64>(out.size()), tokens_);
    std::iota(out.begin(), out.end(), base_ + static_cast<i32>(begin));
  }

 private:
  i32 base_;
  i64 tokens_;
  std::string name_ = "counting";
};

using Sources = std::vector<std::unique_ptr<TokenSource>>;

inline Sources counting(const std::vector<i64>& lengths) {
  Sources sources;
  for (size_t s = 0; s < lengths.size(); ++s) sources.push_back(std::make_unique<Counting>(static_cast<i32>(1000 * s), lengths[s]));
  return sources;
}

inline std::vector<i32> values(const Tensor& t) {
  const auto span = t.span<i32>();
  return {span.begin(), span.end()};
}

inline std::vector<i32> range(i32 begin, i32 end) {
  std::vector<i32> out(static_cast<size_t>(end - begin));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

// Returns the first token of each row of a step, in the order of micro-batches and rows.
inline std::vector<i32> firsts(const StepBatch& batch) {
  std::vector<i32> out;
  for (const MicroBatch& mb : batch.micro_batches) {
    for (i64 row = 0; row < mb.tokens_BT.size(0); ++row)
      out.push_back(mb.tokens_BT.span<i32>()[static_cast<size_t>(row * mb.tokens_BT.size(1))]);
  }
  return out;
}

}  // namespace spillway::data::loader_test
