// Tests ranks that know each other's addresses and connect to each other while strangers crowd their listening sockets.
#include "parallel/sockets/socket_mesh.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <thread>

#include "base/error.h"

namespace spillway::parallel::socket_mesh_test {
namespace {

using testing::HasSubstr;

constexpr i64 kBytes = 8192;

// Holds ranks of one node, each with a listening socket whose backlog may be so short that few connections can wait.
struct Ranks {
  Roster roster{"now", {}};
  std::vector<Descriptor> listeners;
  Secret secret{"t"};

  explicit Ranks(int size, int backlog = 16) {
    for (int r = 0; r < size; ++r) {
      Descriptor& one = listeners.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      const SocketAddress any = SocketAddress::abstract("");
      EXPECT_EQ(bind(one.get(), any.get(), any.bytes()), 0);
      EXPECT_EQ(listen(one.get(), backlog), 0);
      roster.all.push_back({.host = "here", .node = "n", .near_name = SocketAddress::of_this_end(one).text()});
    }
  }
  Descriptor connect_to(size_t rank) const {
    std::string why;
    return try_connect(SocketAddress::abstract(roster.all[rank].near_name), deadline_in(1), why);
  }
  // Connects one rank to all others. Returns "" if all are linked, and the error message if not.
  std::string link(int rank, double meeting_s = 20) {
    const SocketOptions options{.rank = rank, .size = static_cast<int>(roster.all.size()), .meeting_s = meeting_s};
    std::vector<Descriptor> door;
    door.push_back(std::move(listeners[static_cast<size_t>(rank)]));
    try {
      const auto all = link_all(options, roster, secret, Reception(std::move(door), 16), kBytes);
      for (int r = 0; r < options.size; ++r) {
        const Neighbour& one = all[static_cast<size_t>(r)];
        if (static_cast<bool>(one.socket) != (r != rank) || std::ssize(one.memory.bytes()) != kBytes) return "not linked";
      }
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  }
  std::vector<std::string> link_together() {
    std::vector<std::string> ended(roster.all.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ended.size(); ++r) threads.emplace_back([&, r] { ended[r] = link(static_cast<int>(r)); });
    for (std::thread& one : threads) one.join();
    return ended;
  }
};

// Shows that ranks link although strangers have filled the backlogs of their listening sockets before. Any process of the node can
// connect to these sockets.
TEST(SocketMesh, DoorsThatWereFullBeforeAnybodyCame) {
  Ranks ranks(4, 1);
  std::vector<Descriptor> crowd;
  for (size_t r = 0; r < 4; ++r) {
    while (Descriptor one = ranks.connect_to(r)) crowd.push_back(std::move(one));
  }
  EXPECT_EQ(ranks.link_together(), std::vector<std::string>(4));
}

TEST(SocketMesh, CrowdsThatGoOnComing) {
  Ranks ranks(4, 4);
  std::atomic<bool> over = false;
  std::atomic<int> tries = 0;
  std::thread them([&] {
    std::deque<Descriptor> held;
    for (size_t k = 0; !over; ++k) {
      ++tries;
      Descriptor one = ranks.connect_to(k % 4);
      if (one && k % 3 == 0) send_words(one, {"link", "1", std::string(64, '0')}, deadline_in(1));
      held.push_back(std::move(one));
      if (held.size() > 100) held.pop_front();
    }
  });
  while (tries < 100) std::this_thread::yield();
  EXPECT_EQ(ranks.link_together(), std::vector<std::string>(4));
  over = true;
  them.join();
}

// Shows that a proof overheard at an earlier rendezvous of the same ranks, or on its way to another rank, is not accepted.
TEST(SocketMesh, AProofOfAnotherMeetingOpensNoDoor) {
  const Secret secret("t");
  for (const Words& said : {Words{"link", "earlier", "1", "0"}, Words{"link", "now", "1", "2"}, Words{"linked", "now", "1", "0"}}) {
    Ranks ranks(2);
    const Descriptor stranger = ranks.connect_to(0);
    send_words(stranger, {"link", "1", secret.proof_of(said)}, deadline_in(1));
    EXPECT_THAT(ranks.link(0, 0.2), HasSubstr("is not a rank of this run"));
  }
}

// Shows that the rank that answers must also prove that it is the one that was called.
TEST(SocketMesh, WhoAnswersWithoutAProofIsNotLinked) {
  Ranks ranks(2);
  std::thread stranger([&] {
    for (;;) {
      const Descriptor one = accept_from(ranks.listeners[0]);
      std::string why;
      if (one && receive_words(one, deadline_in(1), why)) {
        send_words(one, {"linked", std::string(64, '0')}, deadline_in(1));
        return;
      }
    }
  });
  EXPECT_THAT(ranks.link(1, 2), HasSubstr("is not a rank of this run"));
  stranger.join();
}

}  // namespace
}  // namespace spillway::parallel::socket_mesh_test
