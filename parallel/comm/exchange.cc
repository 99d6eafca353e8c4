#include "parallel/comm/exchange.h"

#include <algorithm>

namespace spillway::parallel {
namespace {

constexpr i64 kLineBytes = 64;

i64 longest_part(const Parts& parts) {
  i64 longest = 0;
  for (size_t r = 0; r + 1 < parts.size(); ++r) longest = std::max(longest, parts[r + 1] - parts[r]);
  return longest;
}

}  // namespace

Exchanges::Exchanges(const Call& call, int rank, int size, i64 staging_bytes)
    : call_(call), rank_(rank), size_(size), whole_bytes_(staging_bytes), slot_bytes_(staging_bytes / size / kLineBytes * kLineBytes) {
  switch (call.what) {
    case Collective::barrier:
    case Collective::split:
      break;
    case Collective::all_gather:
      count_ = ceil_div(longest_part(call.parts), whole_bytes_);
      break;
    case Collective::broadcast:
      count_ = ceil_div(std::ssize(call.gets), whole_bytes_);
      break;
    case Collective::reduce_scatter:
      count_ = ceil_div(longest_part(call.parts) * size_of(call.dtype), slot_bytes_);
      break;
    case Collective::all_reduce:
      count_ = 2 * ceil_div(std::ssize(call.gets), slot_bytes_ * size_);
      break;
  }
}

Exchange Exchanges::at(i64 index) const {
  Exchange x;
  x.gives.resize(static_cast<size_t>(size_)), x.gets.resize(static_cast<size_t>(size_));
  switch (call_.what) {
    case Collective::all_gather:
    case Collective::broadcast:
      everyone_gets(x, index);
      break;
    case Collective::reduce_scatter:
      summed_parts(x, index);
      break;
    default:
      index % 2 == 0 ? summed_slices(x, index / 2) : spread_slices(x, index / 2);
  }
  return x;
}

// Cuts the range [begin, begin + bytes) into pieces of step_bytes and returns piece `index`, which is empty beyond the end of the range.
Exchanges::Range Exchanges::chunk(i64 begin, i64 bytes, i64 index, i64 step_bytes) const {
  const i64 first = std::min(bytes, index * step_bytes), last = std::min(bytes, first + step_bytes);
  return {begin + first, last - first};
}

// Adds to the exchange the bytes of an all-gather or broadcast, in which each member's part goes to all members. In a broadcast the
// root's part is the whole data.
void Exchanges::everyone_gets(Exchange& x, i64 index) const {
  const bool broadcast = call_.what == Collective::broadcast;
  for (int r = 0; r < size_; ++r) {
    const auto member = static_cast<size_t>(r);
    const i64 begin = broadcast ? 0 : call_.parts[member];
    const i64 part = broadcast ? (r == call_.root ? std::ssize(call_.gets) : 0) : part_of(call_.parts, r);
    const Range range = chunk(begin, part, index, whole_bytes_);
    x.gets[member] = {call_.gets.data() + range.begin, range.bytes, 0};
    if (r != rank_) continue;
    const std::byte* mine = call_.gives.data() + (range.begin - begin);
    for (Exchange::Given& to : x.gives) to = {mine, range.bytes, 0};
  }
}

void Exchanges::summed_parts(Exchange& x, i64 index) const {
  const i64 size = size_of(call_.dtype);
  const Range mine = chunk(0, part_of(call_.parts, rank_) * size, index, slot_bytes_);
  for (int r = 0; r < size_; ++r) {
    const auto member = static_cast<size_t>(r);
    const Range range = chunk(call_.parts[member] * size, part_of(call_.parts, r) * size, index, slot_bytes_);
    x.gives[member] = {call_.gives.data() + range.begin, range.bytes, r * slot_bytes_};
    x.gets[member] = {nullptr, mine.bytes, rank_ * slot_bytes_};
  }
  x.result = call_.gets.data() + mine.begin;
  x.result_elems = mine.bytes / size;
}

// Cuts the whole data into pieces, each of which has a range for every member. Returns the part of the index-th piece that lies in this
// member's range.
Exchanges::Range Exchanges::slice(i64 index, int member) const {
  const Range piece = chunk(0, std::ssize(call_.gets), index, slot_bytes_ * size_);
  return chunk(piece.begin, piece.bytes, member, slot_bytes_);
}

void Exchanges::summed_slices(Exchange& x, i64 index) const {
  const Range mine = slice(index, rank_);
  for (int r = 0; r < size_; ++r) {
    const Range range = slice(index, r);
    x.gives[static_cast<size_t>(r)] = {call_.gives.data() + range.begin, range.bytes, r * slot_bytes_};
    x.gets[static_cast<size_t>(r)] = {nullptr, mine.bytes, rank_ * slot_bytes_};
  }
  x.result = call_.gets.data() + mine.begin;
  x.result_elems = mine.bytes / size_of(call_.dtype);
}

void Exchanges::spread_slices(Exchange& x, i64 index) const {
  const Range mine = slice(index, rank_);
  for (int r = 0; r < size_; ++r) {
    const Range range = slice(index, r);
    x.gives[static_cast<size_t>(r)] = {call_.gets.data() + mine.begin, mine.bytes, 0};
    x.gets[static_cast<size_t>(r)] = {call_.gets.data() + range.begin, range.bytes, 0};
  }
}

}  // namespace spillway::parallel
