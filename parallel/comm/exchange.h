// Splits a collective between processes into a list of exchanges of bounded size. Every member derives the list from its own call: for each
// exchange, what this member gives to each member, what it gets from each, and which sum it makes of what it gets. A member's staging
// buffer, from which members on the same node read, is one half of its area of shared memory, and all halves have the same size. Members on
// other nodes send and receive the same bytes without a staging buffer. Plain values; starts no threads.
#pragma once
#include <vector>

#include "parallel/comm/collective.h"

namespace spillway::parallel {

struct Exchange {
  struct Given {
    const std::byte* from = nullptr;
    i64 bytes = 0, at = 0;  // bytes to give to one member, and their offset in this member's staging buffer
  };
  struct Gotten {
    std::byte* to = nullptr;  // where the bytes are copied to; null: they are an operand of the reduction instead
    i64 bytes = 0, at = 0;    // bytes to get from one member, and their offset in that member's staging buffer
  };
  // `gives` and `gets` are indexed by member. They include this member itself, whose bytes to itself need no staging buffer.
  std::vector<Given> gives;
  std::vector<Gotten> gets;
  // If the exchange reduces, the sum is written to `result`. Its operands are what all members give, in rank order.
  std::byte* result = nullptr;
  i64 result_elems = 0;
};

class Exchanges {
 public:
  /// Derives the exchanges from the call of member `rank` of a group of `size` members.
  Exchanges(const Call& call, int rank, int size, i64 staging_bytes);

  /// Returns the number of exchanges, which is the same on all members.
  i64 count() const { return count_; }
  Exchange at(i64 index) const;

 private:
  struct Range {
    i64 begin, bytes;
  };
  Range chunk(i64 begin, i64 bytes, i64 index, i64 step_bytes) const;
  void everyone_gets(Exchange& x, i64 index) const;
  void summed_parts(Exchange& x, i64 index) const;
  void summed_slices(Exchange& x, i64 index) const;
  void spread_slices(Exchange& x, i64 index) const;
  Range slice(i64 index, int member) const;

  const Call& call_;
  int rank_, size_;
  i64 whole_bytes_, slot_bytes_;  // bytes of a staging buffer, and of one member's part of it
  i64 count_ = 0;
};

}  // namespace spillway::parallel
