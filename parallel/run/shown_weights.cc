#include "parallel/run/shown_weights.h"

namespace spillway::parallel {

void ShownWeights::show(u16 group, std::byte* base) {
  for (const Segment& s : plan_.layout.groups[group].segments) {
    model_.parameters[s.parameter]->storage->fill(base + s.begin * size_of(plan_.scheduling.format.weight));
  }
}

void ShownWeights::hide(u16 group) {
  for (const Segment& s : plan_.layout.groups[group].segments) model_.parameters[s.parameter]->storage->drop();
}

void ShownWeights::show_resident() {
  for (const Group& g : plan_.layout.groups) {
    if (!g.held() || plan_.weights_move(g)) continue;
    if (model_.parameters[g.segments[0].parameter]->storage->resident()) hide(g.id);
    show(g.id, state_.weights(g.id).view(whole(g), state_.generation()).data());
  }
}

void ShownWeights::hide_all() {
  for (const auto& p : model_.parameters) {
    if (p->storage->resident()) p->storage->drop();
  }
}

void ShownWeights::publish() {
  state_.publish();
  if (plan_.slots(Tier::device) > 1) show_resident();
}

}  // namespace spillway::parallel
