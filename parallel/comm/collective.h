// A Call is one member's call of a collective as data: the operation, this member's buffers, and how the whole data is partitioned. Every
// communicator checks its calls with the functions of this file, so a wrong call fails with the same message, whether threads, MPI or NCCL
// carry it out. Plain values; starts no threads.
#pragma once
#include <span>
#include <string>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

enum class Collective : u8 { all_gather, reduce_scatter, all_reduce, broadcast, barrier, split };

std::string_view to_string(Collective what);

struct Call {
  Collective what = Collective::barrier;
  std::span<const std::byte> gives = {};  // the bytes that this member contributes; the same memory as `gets` for in-place operations
  std::span<std::byte> gets = {};         // this member's output
  Parts parts = {};                       // how the whole data is partitioned among the members, for operations that partition it
  DType dtype = DType::uint8;
  Reduction reduction = Reduction::sum;
  int root = 0;   // broadcast: the member whose bytes are sent
  int color = 0;  // split: members of equal color form a group
};

inline i64 part_of(const Parts& parts, int member) { return parts[static_cast<size_t>(member) + 1] - parts[static_cast<size_t>(member)]; }

/// Throws Error(bug) if this call, made by member `rank` of `size` members, is wrong no matter what the others call. Reasons are partition
/// boundaries that do not ascend or do not fit the buffers, a root that is not a member, a dtype that the operation does not support, and
/// an address that is not aligned to whole elements.
void check_call(const Call& call, int rank, int size);

/// Compares the calls of all members of a group, one call per member. Returns an empty text if they
/// are the same collective, and otherwise the difference, as "expected …, got …".
std::string disagreement(std::span<const Call> calls);

/// Throws Error(bug) unless `peer` is a member of the group.
void check_peer(const char* op, int peer, int size);

}  // namespace spillway::parallel
