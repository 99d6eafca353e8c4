#include "data/documents/packing.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace spillway::data {
namespace {

// A set of numbers from 0 to n - 1. NumberSet finds the smallest element that is at least a given number in O(log64 n).
class NumberSet {
 public:
  explicit NumberSet(i64 n) {
    for (i64 words = n; words > 1 || levels_.empty();) levels_.emplace_back(static_cast<size_t>(words = ceil_div(words, 64)));
  }
  void insert(i64 x) {
    for (auto& level : levels_) level[static_cast<size_t>(x / 64)] |= u64{1} << (x % 64), x /= 64;
  }
  void erase(i64 x) {
    for (auto& level : levels_) {
      u64& word = level[static_cast<size_t>(x / 64)];
      word &= ~(u64{1} << (x % 64));
      if (word != 0) return;
      x /= 64;
    }
  }
  // Returns the smallest element of the set that is at least x, or -1 if there is none.
  i64 least_from(i64 x) const {
    for (size_t l = 0; l < levels_.size(); ++l) {
      const auto& level = levels_[l];
      if (x / 64 >= std::ssize(level)) return -1;
      if (const u64 word = level[static_cast<size_t>(x / 64)] >> (x % 64); word != 0) {
        x += __builtin_ctzll(word);
        for (; l > 0; --l) x = x * 64 + __builtin_ctzll(levels_[l - 1][static_cast<size_t>(x)]);
        return x;
      }
      x = x / 64 + 1;
    }
    return -1;
  }

 private:
  std::vector<std::vector<u64>> levels_;
};

// Returns the documents' indices sorted by length, the longest document first. Documents of equal length keep their order.
std::vector<u32> longest_first(std::span<const u32> lengths, i64 most) {
  std::vector<u32> begin(static_cast<size_t>(most) + 2), order(lengths.size());
  for (const u32 length : lengths) ++begin[static_cast<size_t>(most) - length + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  for (size_t d = 0; d < lengths.size(); ++d) order[begin[static_cast<size_t>(most) - lengths[d]]++] = static_cast<u32>(d);
  return order;
}

void check_lengths(std::span<const u32> lengths, i64 row_tokens) {
  for (const u32 length : lengths)
    require(length > 0 && length <= row_tokens, "[packing] expected documents of at least one token that fit into a row");
}

}  // namespace

PackedRows pack_documents(std::span<const u32> lengths, i64 row_tokens) {
  check_lengths(lengths, row_tokens);
  constexpr u32 kNone = ~u32{0};
  std::vector<u32> row_of(lengths.size());
  // `last` holds, for each number of free tokens, the row with that many free tokens that was changed last. `before` links rows with
  // equally many free tokens into a list, which begins at this row.
  std::vector<u32> last(static_cast<size_t>(row_tokens) + 1, kNone), before;
  NumberSet rooms(row_tokens + 1);
  const std::vector<u32> order = longest_first(lengths, row_tokens);
  for (const u32 document : order) {
    const i64 length = lengths[document];
    i64 room = rooms.least_from(length);
    u32 row;
    if (room < 0) {
      room = row_tokens;
      row = static_cast<u32>(before.size());
      before.push_back(kNone);
    } else {
      row = last[static_cast<size_t>(room)];
      last[static_cast<size_t>(room)] = before[row];
      if (last[static_cast<size_t>(room)] == kNone) rooms.erase(room);
    }
    row_of[document] = row;
    const auto left = static_cast<size_t>(room - length);
    if (last[left] == kNone) rooms.insert(static_cast<i64>(left));
    before[row] = last[left];
    last[left] = row;
  }
  const auto rows = static_cast<i64>(before.size());
  const RandomKey key = RandomKey{0}.derive("packed rows");
  PackedRows packed{std::vector<u32>(lengths.size()), std::vector<u32>(static_cast<size_t>(rows) + 1)};
  const auto place = [&](u32 row) { return permute(key, static_cast<u64>(rows), row); };
  for (const u32 row : row_of) ++packed.begin[place(row) + 1];
  std::partial_sum(packed.begin.begin(), packed.begin.end(), packed.begin.begin());
  std::vector<u32> next(packed.begin.begin(), packed.begin.end());
  for (const u32 document : order) packed.documents[next[place(row_of[document])]++] = document;
  return packed;
}

PackedRows pack_in_order(std::span<const u32> lengths, i64 row_tokens) {
  check_lengths(lengths, row_tokens);
  PackedRows rows{std::vector<u32>(lengths.size()), {}};
  std::iota(rows.documents.begin(), rows.documents.end(), 0);
  i64 left = 0;  // number of free tokens in the row that is being filled
  for (const u32 document : rows.documents) {
    if (lengths[document] > left) {
      rows.begin.push_back(document);
      left = row_tokens;
    }
    left -= lengths[document];
  }
  rows.begin.push_back(static_cast<u32>(lengths.size()));
  return rows;
}

PackedRows unpacked_documents(i64 documents) {
  PackedRows rows{std::vector<u32>(static_cast<size_t>(documents)), std::vector<u32>(static_cast<size_t>(documents) + 1)};
  std::iota(rows.documents.begin(), rows.documents.end(), 0);
  std::iota(rows.begin.begin(), rows.begin.end(), 0);
  return rows;
}

}  // namespace spillway::data
