// A collective between processes as a list of exchanges of bounded size, which every member derives for itself from its own call: what it
// gives each member, what it gets from each, and the sum it makes of that. Values; no threads. The staging of a member is a half of its
// shared memory, the same size for all; members of other nodes send and receive the same bytes without it.
#pragma once
#include <vector>

#include "parallel/comm/collective.h"

namespace spillway::parallel {

struct Exchange {
  struct Given {
    const std::byte* from = nullptr;
    i64 bytes = 0, at = 0;  // `at`: in my staging
  };
  struct Gotten {
    std::byte* to = nullptr;  // null: an operand of the reduction
    i64 bytes = 0, at = 0;    // `at`: in that member's staging
  };
  // By member, my own too: what I give myself needs no staging.
  std::vector<Given> gives;
  std::vector<Gotten> gets;
  // Where there is something to reduce: all members' gets, in order.
  std::byte* result = nullptr;
  i64 result_elems = 0;
};

class Exchanges {
 public:
  /// Of the call of member `rank` of `size`.
  Exchanges(const Call& call, int rank, int size, i64 staging_bytes);

  /// The same on all members.
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
  i64 whole_bytes_, slot_bytes_;  // of a staging half; of the part of it that is for one member
  i64 count_ = 0;
};

}  // namespace spillway::parallel
