#include "parallel/comm/transfer.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "device/copy.h"

namespace spillway::parallel {
namespace {

// A transfer to several targets works in tiles of these sizes, so that the data stays in the caches. A tile of a sum is
// read again at once and fits the first-level cache. A tile of a copy fits the second level; smaller tiles would be
// slower, because each tile that is written past the caches ends with a wait for its last stores.
constexpr i64 kSumTileBytes = 16 * kKiB, kCopyTileBytes = 128 * kKiB;

template <class T>
T larger(T a, T b) {
  return b > a || b != b ? b : a;
}

i64 wrapped_sum(i64 a, i64 b) { return static_cast<i64>(static_cast<u64>(a) + static_cast<u64>(b)); }

template <class T, class Join>
void fold(const std::vector<const T*>& ranks, T* to, i64 begin, i64 end, Join join) {
  for (i64 i = begin; i < end; ++i) {
    T value = ranks[0][i];
    for (size_t r = 1; r < ranks.size(); ++r) value = join(value, ranks[r][i]);
    to[i] = value;
  }
}

template <class T>
void reduce(Reduction reduction, const std::vector<const T*>& ranks, T* to, i64 begin, i64 end, Stores stores) {
  if (reduction == Reduction::max) return fold(ranks, to, begin, end, larger<T>);
  if constexpr (std::is_floating_point_v<T>) {
    ordered_sum(ranks, to, begin, end, stores);
  } else {
    fold(ranks, to, begin, end, wrapped_sum);
  }
}

void copy(const std::byte* from, std::byte* to, i64 bytes, Stores stores) {
  if (from == to || bytes == 0) return;
  if (stores == Stores::past_caches) return copy_past_caches(to, from, bytes);
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Calls f(first, last) for consecutive tiles [first, last) of [begin, end). With only one
// target, nothing has to stay in the caches, so the whole range is one tile.
template <class F>
void for_tiles(const Transfer& t, i64 begin, i64 end, i64 tile_bytes, F f) {
  const i64 step = t.to.size() == 1 ? end - begin : tile_bytes / size_of(t.dtype);
  for (i64 i = begin; i < end; i += step) f(i, std::min(end, i + step));
}

template <class T>
void carry_reduced(const Transfer& t, i64 begin, i64 end, Stores stores) {
  std::vector<const T*> ranks;
  for (const std::byte* from : t.from) ranks.push_back(reinterpret_cast<const T*>(from));
  for_tiles(t, begin, end, kSumTileBytes, [&](i64 first, i64 last) {
    T* result = reinterpret_cast<T*>(t.to[0]);
    reduce(t.reduction, ranks, result, first, last, stores);
    for (size_t k = 1; k < t.to.size(); ++k)
      std::memcpy(reinterpret_cast<T*>(t.to[k]) + first, result + first, static_cast<size_t>(last - first) * sizeof(T));
  });
}

void carry_copied(const Transfer& t, i64 begin, i64 end, Stores stores) {
  const i64 size = size_of(t.dtype);
  for_tiles(t, begin, end, kCopyTileBytes, [&](i64 first, i64 last) {
    for (std::byte* to : t.to) copy(t.from[0] + first * size, to + first * size, (last - first) * size, stores);
  });
}

Transfer copied(const std::byte* from, std::vector<std::byte*> to, i64 bytes) { return {{from}, std::move(to), bytes}; }

std::vector<std::byte*> targets(std::span<const Call> calls, i64 offset) {
  std::vector<std::byte*> to;
  for (const Call& call : calls) to.push_back(call.gets.data() + offset);
  return to;
}

Transfer reduced(std::span<const Call> calls, i64 begin, i64 elems, std::vector<std::byte*> to) {
  Transfer t{{}, std::move(to), elems, calls[0].dtype, calls[0].reduction};
  for (const Call& call : calls) t.from.push_back(call.gives.data() + begin * size_of(t.dtype));
  return t;
}

// Returns the transfers of an all-gather or a reduce-scatter. An all-gather copies each member's part to all members; a reduce-scatter sums
// each part over all members into the memory of the member that owns it. Empty parts have no transfer.
std::vector<Transfer> dealt(std::span<const Call> calls) {
  std::vector<Transfer> all;
  for (size_t r = 0; r < calls.size(); ++r) {
    const Call& member = calls[r];
    const i64 begin = member.parts[r], part = part_of(member.parts, static_cast<int>(r));
    if (part == 0) continue;
    const bool gathers = member.what == Collective::all_gather;
    all.push_back(gathers ? copied(member.gives.data(), targets(calls, begin), part) : reduced(calls, begin, part, {member.gets.data()}));
  }
  return all;
}

std::vector<Transfer> in_place(std::span<const Call> calls) {
  const Call& first = calls[0];
  const std::span<std::byte> from = calls[static_cast<size_t>(first.root)].gets;
  if (first.gets.empty()) return {};
  if (first.what == Collective::broadcast) return {copied(from.data(), targets(calls, 0), std::ssize(from))};
  return {reduced(calls, 0, std::ssize(first.gets) / size_of(first.dtype), targets(calls, 0))};
}

}  // namespace

Stores Transfer::stores() const {
  const bool own_operand =
      std::any_of(to.begin(), to.end(), [&](std::byte* t) { return std::find(from.begin(), from.end(), t) != from.end(); });
  return elems * size_of(dtype) >= kPastCachesBytes && (from.size() == 1 || !own_operand) ? Stores::past_caches : Stores::cached;
}

std::vector<Transfer> transfers_of(std::span<const Call> calls) {
  switch (calls[0].what) {
    case Collective::barrier:
    case Collective::split:
      return {};
    case Collective::broadcast:
    case Collective::all_reduce:
      return in_place(calls);
    default:
      return dealt(calls);
  }
}

void carry_out(const Transfer& t, i64 begin, i64 end, Stores stores) {
  if (t.from.size() == 1) return carry_copied(t, begin, end, stores);
  if (t.dtype == DType::f32) return carry_reduced<float>(t, begin, end, stores);
  if (t.dtype == DType::f64) return carry_reduced<double>(t, begin, end, stores);
  if (t.dtype == DType::int64) return carry_reduced<i64>(t, begin, end, stores);
  throw Error(ErrorCode::bug, "[reduction] expected f32, f64 or i64, got " + std::string(to_string(t.dtype)));
}

}  // namespace spillway::parallel
