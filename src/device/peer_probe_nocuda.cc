#include "device/peer_probe.h"

namespace spillway {

PeerReport probe_peers(double, double) { return {}; }

}  // namespace spillway
