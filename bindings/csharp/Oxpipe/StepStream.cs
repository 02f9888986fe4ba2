using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Oxpipe
{
    /// <summary>
    /// The steps of a run as an asynchronous sequence. Written out, since compilers before C# 8
    /// cannot make it of an iterator.
    /// </summary>
    internal sealed class StepStream<TItem> : IAsyncEnumerable<TItem> where TItem : class
    {
        private readonly Run run;
        private readonly Func<StepEvent, TItem> select;
        private readonly CancellationToken cancellationToken;

        /// <summary>A step of which `select` makes null gives no item.</summary>
        internal StepStream(Run run, Func<StepEvent, TItem> select, CancellationToken cancellationToken)
        {
            this.run = run;
            this.select = select;
            this.cancellationToken = cancellationToken;
        }

        public IAsyncEnumerator<TItem> GetAsyncEnumerator(CancellationToken token = default(CancellationToken))
        {
            return new Enumerator(this, token);
        }

        private sealed class Enumerator : IAsyncEnumerator<TItem>
        {
            private readonly StepStream<TItem> stream;
            private readonly Func<bool> advance;
            private readonly CancellationTokenSource both;
            private readonly CancellationToken token;
            private CancelScope cancel;
            private bool isStarted;
            private bool isFinished;

            internal Enumerator(StepStream<TItem> stream, CancellationToken token)
            {
                this.stream = stream;
                this.token = stream.cancellationToken;
                if (token.CanBeCanceled && token != stream.cancellationToken)
                {
                    both = CancellationTokenSource.CreateLinkedTokenSource(token, stream.cancellationToken);
                    this.token = both.Token;
                }
                advance = Advance;
            }

            public TItem Current { get; private set; }

            public ValueTask<bool> MoveNextAsync()
            {
                return isFinished ? new ValueTask<bool>(false) : new ValueTask<bool>(Task.Run(advance));
            }

            private bool Advance()
            {
                if (!isStarted)
                {
                    cancel = new CancelScope(token);
                    isStarted = true;
                }
                while (!isFinished)
                {
                    token.ThrowIfCancellationRequested();
                    StepEvent step = stream.run.Step(cancel, token);
                    isFinished = step.FinishReason != FinishReason.None;
                    TItem item = stream.select(step);
                    if (item != null)
                    {
                        Current = item;
                        return true;
                    }
                }
                return false;
            }

            public ValueTask DisposeAsync()
            {
                isFinished = true;
                cancel.Dispose();
                both?.Dispose();
                return default(ValueTask);
            }
        }
    }
}
