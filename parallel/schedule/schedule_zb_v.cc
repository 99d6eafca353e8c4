#include "parallel/schedule/schedule_zb_v.h"

#include <algorithm>

namespace spillway::parallel {
namespace {

// Describes one leg of the V: the micro-batches whose forward, input gradient and weight gradient come
// next. Micro-batches beyond the last one are counted, but no action is added for them.
struct Leg {
  ScheduleRow& row;
  i64 micro_batches, stage;
  i64 forwards = 0, inputs = 0, weights = 0;

  void F() { add(ActionKind::forward, forwards); }
  void I() { add(ActionKind::backward_input, inputs); }
  void W() { add(ActionKind::backward_weight, weights); }
  void IW() { I(), W(); }

 private:
  void add(ActionKind kind, i64& next) {
    if (next < micro_batches) row.push_back({.kind = kind, .stage = static_cast<u16>(stage), .micro_batch = static_cast<u16>(next)});
    ++next;
  }
};

template <class Body>
void repeat(i64 times, Body body) {
  for (i64 i = 0; i < times; ++i) body();
}

}  // namespace

ScheduleRow zb_v_row(i64 ranks, i64 micro_batches, i64 rank) {
  const i64 built = std::max(2 * ranks - 1, micro_batches), behind = ranks - rank;
  ScheduleRow row;
  Leg down{row, micro_batches, rank}, up{row, micro_batches, 2 * ranks - 1 - rank};
  repeat(2 * behind - 1, [&] { down.F(); });
  repeat(rank, [&] { up.F(), down.F(); });
  repeat(behind, [&] { up.F(), up.IW(); });
  while (up.forwards < built) {
    if (down.forwards < built) down.F();
    down.IW();
    up.F();
    up.IW();
  }
  repeat(rank, [&] { down.I(), up.I(); });
  repeat(behind, [&] { down.IW(); });
  while (up.weights < built) up.W();
  while (down.weights < built) down.W();
  return row;
}

}  // namespace spillway::parallel
