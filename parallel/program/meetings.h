// Which instructions of a list need other ranks, and whom. Values.
#pragma once
#include <array>

#include "parallel/program/program.h"

namespace spillway::parallel {

enum class Meeting : u8 {
  none,
  message,     // one pipeline rank sends, another receives
  data_ranks,  // all data-parallel ranks of the same stages
  everybody,
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

/// On which ranks' devices meet: a rank is in one exchange a lane at a time, and those of several lanes must be able to run side by side.
inline constexpr std::array kExchangeLanes = {Lane::data, Lane::send, Lane::receive};

inline bool sends(Op op) { return op == Op::SendActivation || op == Op::SendGradient || op == Op::SendTied; }
inline bool receives(Op op) { return meeting_of(op) == Meeting::message && !sends(op); }

}  // namespace spillway::parallel
