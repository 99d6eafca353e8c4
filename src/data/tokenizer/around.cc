#include "data/tokenizer/around.h"

#include <algorithm>

#include "data/tokenizer/tokenizer.h"

namespace spillway::data {

std::span<const i32> missing_before(const Around& around, std::span<const i32> ids) {
  const std::span<const i32> before = around.before;
  size_t shared = std::min(before.size(), ids.size());
  while (shared > 0 && !std::ranges::equal(before.last(shared), ids.first(shared))) --shared;
  return before.first(before.size() - shared);
}

std::span<const i32> missing_behind(const Around& around, std::span<const i32> ids) {
  const std::span<const i32> behind = around.behind;
  size_t shared = std::min(behind.size(), ids.size());
  while (shared > 0 && !std::ranges::equal(behind.first(shared), ids.last(shared))) --shared;
  return behind.last(behind.size() - shared);
}

std::vector<i32> encode_with_around(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<i32> ids = tokenizer.encode(text);
  const Around& around = tokenizer.around();
  const auto before = missing_before(around, ids), behind = missing_behind(around, ids);
  ids.insert(ids.begin(), before.begin(), before.end());
  ids.insert(ids.end(), behind.begin(), behind.end());
  return ids;
}

}  // namespace spillway::data
