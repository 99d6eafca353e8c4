// One member's call of a collective as data: what it is, the buffers this member brings, and how the whole is dealt. Every communicator
// checks calls here, so that a wrong one fails with the same words behind threads, MPI and NCCL. Values; no threads.
#pragma once
#include <span>
#include <string>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

enum class Collective : u8 { all_gather, reduce_scatter, all_reduce, broadcast, barrier, split };

std::string_view to_string(Collective what);

struct Call {
  Collective what = Collective::barrier;
  std::span<const std::byte> gives = {};  // of this member; in place: the same as `gets`
  std::span<std::byte> gets = {};
  Parts parts = {};  // of the whole, where it is dealt
  DType dtype = DType::uint8;
  Reduction reduction = Reduction::sum;
  int root = 0;   // broadcast
  int color = 0;  // split
};

inline i64 part_of(const Parts& parts, int member) { return parts[static_cast<size_t>(member) + 1] - parts[static_cast<size_t>(member)]; }

/// Throws Error(bug) when the call of member `rank` of `size` is wrong whatever the others call: parts that do not ascend or do not fit
/// the buffers, a root that is no member, a type that the operation does not know, an address that is not a whole element's.
void check_call(const Call& call, int rank, int size);

/// Why these calls, one a member, are not one collective: "expected …, got …"; empty when they are.
std::string disagreement(std::span<const Call> calls);

/// Throws Error(bug) unless `peer` is a member.
void check_peer(const char* op, int peer, int size);

}  // namespace spillway::parallel
