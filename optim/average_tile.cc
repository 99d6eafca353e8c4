#include "optim/average_tile.h"

#include "base/error.h"
#include "optim/bf16.h"
#include "optim/element.h"

namespace spillway::optim {
namespace {

template <class T, class Master>
void average_all(const StateFormat& format, const AverageOperands& tile, T share, const Master& master) {
  const std::byte* old = tile.old_state + format.average_begin_bytes();
  std::byte* next = tile.new_state + format.average_begin_bytes();
  for (i64 i = 0; i < kTileElems; ++i) {
    const T a = load_element<T>(old, i);
    const T step = share * (static_cast<T>(master(i)) - a);
    store_element(next, i, a + step);
  }
}

}  // namespace

void average_tile(const StateFormat& format, const AverageOperands& tile, double decay) {
  require(format.average, "[average] expected a state format with an average of the weights");
  const std::byte *weight = tile.weight, *state = tile.state;
  const auto share = static_cast<float>(1 - decay);
  if (format.weight == DType::f64) return average_all(format, tile, 1 - decay, [&](i64 i) { return load_element<double>(weight, i); });
  if (format.weight == DType::f32) return average_all(format, tile, share, [&](i64 i) { return load_element<float>(weight, i); });
  if (format.master == Master::fp32) return average_all(format, tile, share, [&](i64 i) { return load_element<float>(state, i); });
  average_all(format, tile, share, [&](i64 i) { return join_master(load_element<u16>(weight, i), load_element<u16>(state, i)); });
}

}  // namespace spillway::optim
