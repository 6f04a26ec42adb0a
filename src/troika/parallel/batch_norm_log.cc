// What pieces of a batch a BatchNorm may get, and how its running statistics follow the groups of a step.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "troika/base/error.h"
#include "troika/parallel/batch_norm.h"

namespace troika {
namespace {

int64_t groups_of(int64_t samples, int64_t group) { return (samples + group - 1) / group; }

/// Up to five group sizes, the largest first, that give every piece a group: those that divide the batch,
/// else those that leave no sample alone in the last group.
std::vector<int64_t> sizes_that_work(int64_t batch, int64_t pieces) {
  constexpr size_t kEnough = 5;
  std::vector<int64_t> dividing, others;
  for (int64_t size = batch; size >= 2 && dividing.size() < kEnough; --size) {
    if (groups_of(batch, size) < pieces) continue;
    if (batch % size == 0) dividing.push_back(size);
    if (batch % size > 1 && others.size() < kEnough) others.push_back(size);
  }
  return dividing.empty() ? others : dividing;
}

std::string plural(int64_t count, const char* one, const char* more) {
  return fmt::format("{} {}", count, count == 1 ? one : more);
}

void refuse_negative(int64_t group) {
  if (group < 0)
    fail_usage("batch_norm_group is {}; expected 0 (the whole batch) or a number of samples", group);
}

// As torch does it for contiguous inputs: products in the buffer's precision, the variance added in float64.
template <typename Number>
void move_mean(Number* running, const std::vector<double>& mean, double momentum) {
  const auto m = static_cast<Number>(momentum);
  for (size_t i = 0; i < mean.size(); ++i) {
    running[i] = m * static_cast<Number>(mean[i]) + (1 - m) * running[i];
  }
}

template <typename Number>
void move_variance(Number* running, const std::vector<double>& variance, double momentum) {
  const auto m = static_cast<Number>(momentum);
  for (size_t i = 0; i < variance.size(); ++i) {
    const Number kept = (1 - m) * running[i];
    running[i] = static_cast<Number>(static_cast<double>(m) * variance[i] + static_cast<double>(kept));
  }
}

std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

bool is_over_the_same(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() > 0 && a.data_ptr() == b.data_ptr() && a.sizes() == b.sizes();
}

constexpr size_t kHeader = 8;  // numbers of a record before its mean and variance

}  // namespace

void check_batch_norm_group(const std::string& layer, int64_t batch, int64_t group, int ranks,
                            int64_t micro_batches) {
  refuse_negative(group);
  const int64_t size = group == 0 ? batch : std::min(group, batch);
  const int64_t pieces = ranks * micro_batches;
  if (size == 0 || groups_of(batch, size) >= pieces) return;
  const std::vector<int64_t> sizes = sizes_that_work(batch, pieces);
  const std::string way_out =
      sizes.empty() ? fmt::format("Take a batch of at least {} samples, or fewer ranks", 2 * pieces)
                    : fmt::format("Set train.batch_norm_group to {}, or use fewer ranks or micro-batches",
                                  fmt::join(sizes, ", "));
  fail_usage(
      "layer \"{}\" is a BatchNorm, which normalises over {}: {} x {} need at least {} groups in a batch of "
      "{} samples, because no group is spread over ranks or micro-batches. {}",
      layer, size == batch ? "the whole batch" : fmt::format("groups of {} samples", size),
      plural(ranks, "rank", "ranks"), plural(micro_batches, "micro-batch", "micro-batches"), pieces, batch,
      way_out);
}

void check_batch_norm_pieces(const std::string& layer, std::span<const Batch> pieces, int64_t group) {
  refuse_negative(group);
  int64_t begin = 0;  // where the next piece may start
  for (const Batch& piece : pieces) {
    if (piece.samples == 0) continue;
    if (piece.first_sample < begin) {
      fail_usage(
          "layer \"{}\" is a BatchNorm, and a piece starts at sample {} of the batch, before the end of the "
          "one "
          "before it ({}): set Batch::first_sample, and give the pieces in the order of their samples",
          layer, piece.first_sample, begin);
    }
    if (group == 0 ? piece.first_sample != 0 : piece.first_sample % group != 0) {
      fail_usage(
          "layer \"{}\" is a BatchNorm over {}, and a piece starts at sample {} of the batch, inside a "
          "group: "
          "deal whole groups to ranks and micro-batches (piece_of with batch_norm_group as its unit), with a "
          "batch_norm_group that divides {}",
          layer, group == 0 ? std::string("the whole batch") : fmt::format("groups of {} samples", group),
          piece.first_sample, piece.first_sample);
    }
    begin = piece.first_sample + piece.samples;
  }
}

int64_t BatchNormLog::place_of(const at::Tensor& buffer) const {
  if (!buffer.defined()) return -1;
  const auto& others = model_->others();
  const auto at =
      std::find_if(others.begin(), others.end(),
                   // A version of the model has tensors of its own over the same memory.
                   [&](const NamedTensor& other) {
                     return other.tensor.is_same(buffer) || is_over_the_same(other.tensor, buffer);
                   });
  // torch's kind of error: Model::forward adds the layer's name to it.
  TORCH_CHECK(at != others.end(),
              "its BatchNorm keeps running statistics that are no buffers of the model, so ",
              "they can't be kept alike on all ranks: register them with register_buffer");
  return at - others.begin();
}

void BatchNormLog::record(const BatchNormUpdate& update) {
  Record record;
  record.running_mean = place_of(update.running_mean);
  record.running_var = place_of(update.running_var);
  record.counter = place_of(update.counter);
  record.cumulative = update.cumulative;
  record.momentum = update.momentum;
  record.group = update.group;
  // A group is in one piece, so what is here of it are this layer's earlier calls.
  record.call = std::count_if(records_.begin(), records_.end(), [&](const Record& r) {
    return r.running_mean == record.running_mean && r.running_var == record.running_var &&
           r.group == record.group;
  });
  record.mean = numbers_of(update.mean);
  record.variance = numbers_of(update.variance);
  records_.push_back(std::move(record));
}

std::vector<double> BatchNormLog::to_numbers() const {
  std::vector<double> out;
  for (const Record& r : records_) {
    for (const int64_t whole : {r.running_mean, r.running_var, r.counter, r.call, r.group}) {
      out.push_back(static_cast<double>(whole));
    }
    out.insert(out.end(), {r.cumulative ? 1.0 : 0.0, r.momentum, static_cast<double>(r.mean.size())});
    out.insert(out.end(), r.mean.begin(), r.mean.end());
    out.insert(out.end(), r.variance.begin(), r.variance.end());
  }
  return out;
}

void BatchNormLog::add_from(std::span<const double> numbers) {
  while (!numbers.empty()) {
    const auto whole = [&](size_t i) { return static_cast<int64_t>(numbers[i]); };
    Record record{whole(0), whole(1), whole(2), whole(3), whole(4), whole(5) != 0, numbers[6], {}, {}};
    const auto channels = static_cast<size_t>(whole(7));
    const auto mean = numbers.subspan(kHeader, channels),
               variance = numbers.subspan(kHeader + channels, channels);
    record.mean.assign(mean.begin(), mean.end());
    record.variance.assign(variance.begin(), variance.end());
    records_.push_back(std::move(record));
    numbers = numbers.subspan(kHeader + 2 * channels);
  }
}

void BatchNormLog::exchange(Communicator& communicator) {
  // Every rank has the same buffers, so all leave here or none.
  if (communicator.size() == 1 || model_->others().empty()) return;
  std::vector<double> mine = to_numbers();
  const auto ranks = static_cast<size_t>(communicator.size());
  auto size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(ranks);
  communicator.all_gather({&size, 1, ElementType::int64},
                          {sizes.data(), communicator.size(), ElementType::int64});
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  if (longest == 0) return;
  mine.resize(static_cast<size_t>(longest));  // parts of an all-gather have one size
  std::vector<double> all(mine.size() * ranks);
  communicator.all_gather({mine.data(), longest, ElementType::float64},
                          {all.data(), longest * communicator.size(), ElementType::float64});
  records_.clear();
  for (size_t rank = 0; rank < ranks; ++rank) {
    add_from({all.data() + rank * mine.size(), static_cast<size_t>(sizes[rank])});
  }
  put_in_order();
}

void BatchNormLog::apply() {
  put_in_order();
  for (const Record& record : records_) take_in(record);
  records_.clear();
}

void BatchNormLog::put_in_order() {
  const auto key = [](const Record& r) { return std::tuple(r.running_mean, r.running_var, r.call, r.group); };
  std::sort(records_.begin(), records_.end(),
            [&](const Record& a, const Record& b) { return key(a) < key(b); });
  const auto twice = std::adjacent_find(records_.begin(), records_.end(),
                                        [&](const Record& a, const Record& b) { return key(a) == key(b); });
  if (twice == records_.end()) return;
  const auto place = static_cast<size_t>(twice->running_mean >= 0 ? twice->running_mean : twice->running_var);
  fail(
      "two ranks had group {} of the batch for \"{}\": give every piece its own samples, and set "
      "Batch::first_sample to the place of the first one in the global batch",
      twice->group, model_->others()[place].name);
}

void BatchNormLog::take_in(const Record& record) {
  const at::NoGradGuard no_grad;
  const auto buffer = [&](int64_t place) { return model_->others()[static_cast<size_t>(place)].tensor; };
  double momentum = record.momentum;
  if (record.counter >= 0) {
    at::Tensor counter = buffer(record.counter);
    counter.add_(1);
    if (record.cumulative) momentum = 1.0 / counter.item<double>();
  }
  const auto move = [&](int64_t place, const std::vector<double>& numbers, auto how) {
    if (place < 0) return;
    const at::Tensor running = buffer(place);
    at::Tensor here = running.detach().to(at::kCPU).contiguous();
    if (here.scalar_type() == at::kDouble) {
      how(here.mutable_data_ptr<double>(), numbers, momentum);
    } else {
      how(here.mutable_data_ptr<float>(), numbers, momentum);
    }
    if (!here.is_alias_of(running)) running.detach().copy_(here);
  };
  move(record.running_mean, record.mean,
       [](auto* to, const auto& from, double m) { move_mean(to, from, m); });
  move(record.running_var, record.variance,
       [](auto* to, const auto& from, double m) { move_variance(to, from, m); });
}

}  // namespace troika
