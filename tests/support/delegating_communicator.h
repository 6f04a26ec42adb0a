// A Communicator that passes everything on to another: the base of those that watch, delay or spoil
// something.
#pragma once

#include "troika/comm/communicator.h"

namespace troika::test {

class DelegatingCommunicator : public Communicator {
 public:
  explicit DelegatingCommunicator(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::unique_ptr<Communicator> sub(std::span<const int> members) override { return inner_.sub(members); }
  bool shares_memory() const override { return inner_.shares_memory(); }
  void all_reduce_sum(Elements elements) override { inner_.all_reduce_sum(elements); }
  void all_reduce_weighted_mean(Elements elements, double weight) override {
    inner_.all_reduce_weighted_mean(elements, weight);
  }
  void reduce_scatter_sum(Elements elements, Elements part) override {
    inner_.reduce_scatter_sum(elements, part);
  }
  void all_gather(Elements part, Elements all) override { inner_.all_gather(part, all); }
  void broadcast(Elements elements, int root) override { inner_.broadcast(elements, root); }
  void send(Elements elements, int to, int64_t tag) override { inner_.send(elements, to, tag); }
  void receive(Elements elements, int from, int64_t tag) override { inner_.receive(elements, from, tag); }
  void barrier() override { inner_.barrier(); }
  std::unique_ptr<Request> start_all_reduce_sum(Elements elements) override {
    return inner_.start_all_reduce_sum(elements);
  }
  bool test(Request& request) override { return inner_.test(request); }
  void wait(Request& request) override { inner_.wait(request); }
  void say(std::string_view doing, int64_t step) override { inner_.say(doing, step); }

 protected:
  Communicator& inner_;
};

}  // namespace troika::test
