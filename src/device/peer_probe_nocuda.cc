#include "device/peer_probe.h"

namespace spillway {

PeerReport probe_peers(double) { return {}; }

}  // namespace spillway
