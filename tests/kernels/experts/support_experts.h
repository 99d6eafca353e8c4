// Makes choices of experts, and sorts them into rows, for tests of kernels/experts.
#pragma once
#include <algorithm>
#include <vector>

#include "kernels/experts/expert_rows.h"
#include "tests/support/numbers.h"

namespace spillway::test {

struct Rows {
  Tensor begins, choice_of_row, row_of_choice;
};

inline Rows sorted(const Tensor& experts, i64 count) {
  const Rows r{empty({count + 1}, DType::int32), empty({experts.elems()}, DType::int32), empty(experts.shape(), DType::int32)};
  const i64 bytes = kernels::sort_by_expert_workspace_bytes(experts.elems(), count);
  kernels::sort_by_expert(experts, r.begins, r.choice_of_row, r.row_of_choice, bytes > 0 ? empty({bytes}, DType::uint8) : Tensor());
  return r;
}

/// Returns `chosen` different experts for each token, in ascending order. If there are at least three experts, expert 1 gets no token.
inline Tensor experts_of(i64 tokens, i64 count, i64 chosen) {
  const Tensor experts = empty({tokens, chosen}, DType::int32);
  for (i64 n = 0; n < tokens; ++n) {
    std::vector<i32> of;
    for (i64 k = 0; static_cast<i64>(of.size()) < chosen; ++k) {
      const auto e = static_cast<i32>((n * n + 7 * n / 3 + k) % count);
      if (e != 1 || count < 3) of.push_back(e);
    }
    std::sort(of.begin(), of.end());
    std::copy(of.begin(), of.end(), experts.data<i32>() + n * chosen);
  }
  return experts;
}

}  // namespace spillway::test
