// Tells which instructions of a list communicate with other ranks, and with which ones. Plain values.
#pragma once
#include <array>

#include "parallel/program/program.h"

namespace spillway::parallel {

enum class Meeting : u8 {
  none,
  message,     // point to point: one pipeline rank sends and another receives
  data_ranks,  // a collective of the data-parallel ranks of the same pipeline stages
  everybody,   // a collective of all ranks of the run
};

inline Meeting meeting_of(Op op) {
  switch (op) {
    case Op::SendActivation:
    case Op::SendGradient:
    case Op::SendTied:
    case Op::ReceiveActivation:
    case Op::ReceiveGradient:
    case Op::ReceiveTied:
      return Meeting::message;
    case Op::Load:
    case Op::Gather:
    case Op::Exchange:
      return Meeting::data_ranks;
    case Op::AgreeNorm:
      return Meeting::everybody;
    default:
      return Meeting::none;
  }
}

/// Lists the lanes (sequences of instructions of one kind) on which devices of different ranks exchange data. On each of these lanes a
/// rank takes part in at most one exchange at a time. Exchanges on different lanes must be able to run concurrently.
inline constexpr std::array kExchangeLanes = {Lane::data, Lane::send, Lane::receive};

inline bool sends(Op op) { return op == Op::SendActivation || op == Op::SendGradient || op == Op::SendTied; }
inline bool receives(Op op) { return meeting_of(op) == Meeting::message && !sends(op); }

}  // namespace spillway::parallel
