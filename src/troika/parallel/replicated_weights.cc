// Replicated weights: every rank has its own copy of weights and optimizer state, as processes must.
// Gradients are copied into a flat buffer as they get ready, which is cut into buckets, from its end to its
// start because backward makes gradients in about that order. A bucket's all-reduce starts as soon as the
// last of its gradients is there, from a hook in the last backward of the step, and goes on while the rest of
// backward runs. All ranks then apply the same update to the same numbers.
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/parallel/gradient_sync.h"

namespace troika {
namespace {

/// Fires on the rank's thread each time backward has accumulated a parameter's gradient.
class ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit ReadyHook(std::function<void()> ready) : ready_(std::move(ready)) {}
  void operator()(const at::Tensor&) override { ready_(); }

 private:
  std::function<void()> ready_;
};

struct Bucket {
  Range elements;
  int64_t parameters = 0;
};

/// Whole parameters, last first, until a bucket has `bucket_bytes`.
std::vector<Bucket> cut_buckets(const FlatLayout& layout, int64_t element_bytes, int64_t bucket_bytes,
                                std::vector<size_t>& bucket_of_parameter) {
  std::vector<Bucket> buckets;
  bucket_of_parameter.resize(layout.entries.size());
  for (size_t i = layout.entries.size(); i-- > 0;) {
    const Range elements = layout.padded(i);
    if (buckets.empty() || buckets.back().elements.size() * element_bytes >= bucket_bytes) {
      buckets.push_back({{elements.begin, elements.end}, 0});
    }
    buckets.back().elements.begin = elements.begin;
    ++buckets.back().parameters;
    bucket_of_parameter[i] = buckets.size() - 1;
  }
  return buckets;
}

class ReplicatedWeights final : public GradientSync {
 public:
  ReplicatedWeights(Communicator& communicator, const ReplicaOptions& options, FlatBuffers buffers,
                    const std::vector<NamedTensor>& parameters)
      : GradientSync(parameters), communicator_(communicator), hooked_(parameters) {
    buffers_ = std::move(buffers);
    written_ = {0, buffers_.layout.total};
    is_double_ = options.dtype == at::kDouble;
    sums_ = zero_flat(buffers_.layout, options.dtype);
    buckets_ = cut_buckets(buffers_.layout, element_bytes(), options.bucket_bytes, bucket_of_parameter_);
    numbers_.resize(static_cast<size_t>(communicator.size()));
    squares_.resize(static_cast<size_t>(count_norm_blocks(buffers_.layout)));
    refuse_different_weights();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor,
                                                     std::make_unique<ReadyHook>([this, i] { ready(i); }));
    }
  }

  // A module may outlive its replica.
  ~ReplicatedWeights() override {
    for (const NamedTensor& p : hooked_) torch::autograd::impl::set_post_acc_grad_hooks(p.tensor, nullptr);
  }

  int64_t weight_version() const override { return writes_; }

  void begin_step() override {
    drop_gradients(parameters_);
    missing_.clear();
    for (const Bucket& bucket : buckets_) missing_.push_back(bucket.parameters);
    taken_.assign(parameters_.size(), 0);
    requests_.clear();
    finished_ = 0;
    last_backward_ = false;
  }

  void begin_last_backward() override { last_backward_ = true; }

  std::span<const StepNumbers> exchange(const StepNumbers& numbers) override {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (taken_[i] == 0) take_gradient(i);  // not touched by the last backward
    }
    while (requests_.size() < buckets_.size()) start_next_bucket();
    StepNumbers mine = numbers;
    mine.touched_all =
        std::all_of(taken_.begin(), taken_.end(), [](uint8_t t) { return t == kTouched; }) ? 1 : 0;
    constexpr int64_t kFields = sizeof(StepNumbers) / sizeof(double);
    waiting([&] {
      communicator_.all_gather({&mine, kFields, ElementType::float64},
                               {numbers_.data(), kFields * communicator_.size(), ElementType::float64});
      for (; finished_ < requests_.size(); ++finished_) communicator_.wait(*requests_[finished_]);
      agree_on_touched();
    });
    sums_of_touched_.clear();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      sums_of_touched_.push_back(touched_[i] != 0 ? place_of(i) : nullptr);
    }
    return numbers_;
  }

  // Every rank has all sums, so each takes the whole norm.
  std::vector<double> squares(double weight) override {
    add_norm_blocks(buffers_.layout, is_double_, weight, sums_of_touched_, written_, squares_);
    return squares_of_parameters(buffers_.layout, squares_);
  }

  void update(const Update& update) override {
    at::Tensor mean;
    if (update.mean != nullptr)
      mean = *update.mean = empty_flat(buffers_.layout, buffers_.weights.scalar_type());
    ++writes_;
    finite_ = update_slice(buffers_, update, sums_of_touched_, mean, written_);
  }

  bool finish_update(const Update&) override { return finite_; }
  void discard() override { drop_gradients(parameters_); }

  bool begin_load() override { return true; }
  void end_load() override { communicator_.barrier(); }

 private:
  static constexpr uint8_t kTouched = 1, kZero = 2;

  int64_t element_bytes() const { return is_double_ ? 8 : 4; }

  char* place_of(size_t parameter) const {
    return static_cast<char*>(sums_.data_ptr()) + buffers_.layout.entries[parameter].offset * element_bytes();
  }

  // Runs in a hook: must not block.
  void ready(size_t parameter) {
    if (!last_backward_) return;
    if (taken_[parameter] != 0) {
      fail(
          "parameter \"{}\" got a second gradient in one backward, after the first was passed on: use "
          "weights = "
          "\"shared\" for models that run backward inside backward",
          parameters_[parameter].name);
    }
    take_gradient(parameter);
    --missing_[bucket_of_parameter_[parameter]];
    start_complete_buckets();
    finish_what_is_there();
  }

  // Copies it to its place in the buckets, and frees it.
  void take_gradient(size_t parameter) {
    const auto bytes = static_cast<size_t>(buffers_.layout.entries[parameter].size * element_bytes());
    const void* const gradient = gradient_of(parameters_[parameter]);
    if (gradient != nullptr) {
      std::memcpy(place_of(parameter), gradient, bytes);
      parameters_[parameter].tensor.mutable_grad().reset();
    } else {
      std::memset(place_of(parameter), 0, bytes);
    }
    taken_[parameter] = gradient != nullptr ? kTouched : kZero;
  }

  // Only if no rank has touched all is there anything to ask.
  void agree_on_touched() {
    touched_.assign(parameters_.size(), 1);
    if (std::any_of(numbers_.begin(), numbers_.end(), [](const auto& n) { return n.touched_all != 0; }))
      return;
    std::vector<int64_t> counts;
    for (const uint8_t taken : taken_) counts.push_back(taken == kTouched ? 1 : 0);
    communicator_.all_reduce_sum({counts.data(), static_cast<int64_t>(counts.size()), ElementType::int64});
    for (size_t i = 0; i < counts.size(); ++i) touched_[i] = counts[i] > 0 ? 1 : 0;
  }

  // In the same order on every rank: a complete bucket waits for those before it.
  void start_complete_buckets() {
    while (requests_.size() < buckets_.size() && missing_[requests_.size()] == 0) start_next_bucket();
  }

  void start_next_bucket() {
    const Range elements = buckets_[requests_.size()].elements;
    char* start = static_cast<char*>(sums_.data_ptr()) + elements.begin * element_bytes();
    requests_.push_back(communicator_.start_all_reduce_sum(
        {start, elements.size(), is_double_ ? ElementType::float64 : ElementType::float32}));
  }

  // In a hook: does this rank's part of sums that the other ranks are waiting for, without waiting itself.
  void finish_what_is_there() {
    while (finished_ < requests_.size() && communicator_.test(*requests_[finished_])) ++finished_;
  }

  void refuse_different_weights() {
    std::vector<int64_t> hashes;
    const auto& layout = buffers_.layout;
    int64_t names = 0;
    for (size_t i = 0; i < layout.entries.size(); ++i) {
      const auto& entry = layout.entries[i];
      const char* start =
          static_cast<const char*>(buffers_.weights.data_ptr()) + entry.offset * element_bytes();
      hashes.push_back(static_cast<int64_t>(hash64({start, static_cast<size_t>(entry.size * element_bytes())},
                                                   static_cast<uint64_t>(entry.size))));
      names = static_cast<int64_t>(hash64(entry.name, static_cast<uint64_t>(names)));
    }
    for (const int64_t other : gather({names})) {
      if (other != names) {
        fail_usage(
            "the ranks have different parameters: a layer's factory must build the same module on every "
            "rank");
      }
    }
    const std::vector<int64_t> all = gather(hashes);
    for (size_t k = 0; k < all.size(); ++k) {
      const size_t i = k % hashes.size();
      if (all[k] != all[i]) {
        fail_usage(
            "parameter \"{}\" starts with other numbers on rank {} than on rank 0: a layer's factory may "
            "draw "
            "from torch's default generator only",
            layout.entries[i].name, k / hashes.size());
      }
    }
  }

  std::vector<int64_t> gather(std::vector<int64_t> mine) {
    const auto count = static_cast<int64_t>(mine.size());
    std::vector<int64_t> all(mine.size() * static_cast<size_t>(communicator_.size()));
    communicator_.all_gather({mine.data(), count, ElementType::int64},
                             {all.data(), count * communicator_.size(), ElementType::int64});
    return all;
  }

  Communicator& communicator_;
  std::vector<NamedTensor> hooked_;  // the model's, whatever parameters_ become
  bool is_double_ = false;
  at::Tensor sums_;              // flat: this rank's gradients, then the sums over the ranks
  std::vector<Bucket> buckets_;  // in the order in which they are started
  std::vector<size_t> bucket_of_parameter_;
  std::vector<StepNumbers> numbers_;
  std::vector<double> squares_;  // by block of the norm
  int64_t writes_ = 0;
  bool finite_ = true;  // the last mean gradient

  // Of the present step.
  bool last_backward_ = false;
  std::vector<int64_t> missing_;                    // by bucket: gradients still to come
  std::vector<uint8_t> taken_;                      // by parameter: kTouched, kZero, or 0 for not yet
  std::vector<std::unique_ptr<Request>> requests_;  // of the first buckets
  size_t finished_ = 0;                             // of the requests
  std::vector<const void*> sums_of_touched_;        // by parameter; null if no rank has touched it
};

}  // namespace

PlacedModel place_replicated_weights(Communicator& communicator, const StageModel& stage) {
  const ReplicaOptions& options = stage.options;
  if (options.bucket_bytes < 1) fail_usage("bucket_bytes is {}; it must be at least 1", options.bucket_bytes);
  PlacedModel placed;
  std::vector<FlatBuffers> own;
  for (int version = 0; version < stage.versions; ++version) {
    placed.models.push_back(std::make_unique<Model>(
        stage.layers, options.seed, options.dtype,
        [&](const auto&) { communicator.say("building the model", 0); }, stage.border, stage.slices));
    own.push_back(own_flat_buffers(*placed.models.back(), options.dtype));
    placed.weights.push_back(own.back().weights);
  }
  for (size_t i = 0; i < moment_names(options.optimizer).size(); ++i) {
    own[0].moments.push_back(zero_flat(own[0].layout, options.dtype));
  }
  placed.sync = std::make_unique<ReplicatedWeights>(communicator, options, std::move(own[0]),
                                                    placed.models[0]->parameters());
  return placed;
}

}  // namespace troika
