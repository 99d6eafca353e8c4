// A SocketWire is the wire (wire.h) over sockets and shared memory. It has a link to every other rank, and queues for what this rank sends
// to itself. It polls all links together and handles only those on which something has happened. Used by one thread at a time; only close()
// blocks.
#pragma once
#include <memory>
#include <unordered_map>

#include "parallel/sockets/socket_link.h"
#include "parallel/sockets/socket_mesh.h"

namespace spillway::parallel {

class SocketWire final : public Wire {
 public:
  SocketWire(int rank, std::vector<Neighbour> neighbours);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(links_.size()); }
  std::span<std::byte> memory_of(int rank) override { return memories_[static_cast<size_t>(rank)].bytes(); }

  Ticket send(Channel channel, std::span<const std::byte> bytes, int to, int tag) override;
  Ticket receive(Channel channel, std::span<std::byte> bytes, int from, int tag) override;
  bool is_done(Ticket ticket) override;
  void drop(Ticket ticket) override;
  void post(int to, std::vector<std::byte> letter) override;
  std::optional<Letter> next_letter() override;
  std::vector<Gone> gone() override;
  bool give_up(int rank) override;
  bool all_posted() override;
  void close() override;

 private:
  // Describes a send or receive between this rank and itself.
  struct Own {
    Ticket ticket;
    std::span<const std::byte> from;
    std::span<std::byte> to;
  };
  struct OwnQueues {
    std::deque<Own> sends, receives;
  };

  SocketLink& link_to(int rank) { return *links_[static_cast<size_t>(rank)]; }
  void move(int wait_ms);
  void turn(int rank);
  void watch(int rank);
  Ticket start_own(Channel channel, int tag, bool sends, Own own);

  const int rank_;
  std::vector<SharedMemory> memories_;
  std::vector<std::unique_ptr<SocketLink>> links_;  // the link to each rank; null for this rank
  std::vector<u32> watched_;                        // for each rank: the events for which epoll watches its link
  std::vector<bool> told_;                          // for each rank: whether gone() has returned it
  Descriptor epoll_;
  Ticket tickets_ = 0;
  std::unordered_map<Ticket, int> peers_;  // for each ticket in progress: the rank with which data is exchanged
  std::map<std::pair<Channel, int>, OwnQueues> own_;
  std::unordered_map<Ticket, bool> own_done_;
  std::deque<Letter> letters_;
};

}  // namespace spillway::parallel
