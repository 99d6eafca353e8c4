#include "app/ranks/rank_console.h"

#include <ostream>

namespace spillway::app {

int run_on_ranks(const Peers& peers, Console& console, const std::function<int(Console&)>& body) {
  std::ostream nowhere(nullptr);
  Console silent(nowhere, nowhere);
  return trainer::run_on_ranks(peers, [&] { return body(peers.first() ? console : silent); });
}

}  // namespace spillway::app
