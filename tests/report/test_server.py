"""The local server: lists and shows runs, follows them, and answers nobody and nothing else."""

from __future__ import annotations

import http.client
import json
import threading
from urllib.parse import quote

import pytest

from undertow.errors import NotThere, RunProblem
from undertow.report.server import ServedRuns, make_server


class Client:
    """Sends addresses as they are: a browser would tidy them first."""

    def __init__(self, server):
        self.address, self.port = server.server_address[:2]

    def get(self, path, host=None, method="GET"):
        line = http.client.HTTPConnection(self.address, self.port, timeout=120)
        line.putrequest(method, path, skip_host=True)
        line.putheader("Host", host or f"127.0.0.1:{self.port}")
        line.endheaders()
        answer = line.getresponse()
        text = answer.read().decode()
        line.close()
        return answer.status, answer.headers, text


@pytest.fixture(scope="module")
def runs(make_audit, tmp_path_factory):
    base = tmp_path_factory.mktemp("served")
    (base / "secret.txt").write_text("top secret")
    folder = base / "runs"
    make_audit(folder / "m40", checkpoints=3, lenses=("latent",))
    make_audit(folder / "deep" / "<img src=x onerror=alert(1)>", checkpoints=3, lenses=("richness",))
    (folder / "m40" / "secret.txt").write_text("top secret")
    return folder


@pytest.fixture(scope="module")
def client(runs):
    with make_server(runs, port=0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Client(server)
        server.shutdown()
        thread.join()


def test_it_listens_on_this_machine_only(client):
    assert client.address == "127.0.0.1"


def test_the_list_names_all_runs_as_text(client):
    status, headers, text = client.get("/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert 'href="/run/m40"' in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<img" not in text


def test_reports_are_opened(client):
    for name in ("m40", "deep/<img src=x onerror=alert(1)>"):
        status, _, text = client.get(f"/run/{quote(name)}")
        assert status == 200
        assert "The verdict" in text
        assert "<img" not in text
    status, _, text = client.get("/together")
    assert status == 200
    assert "2 runs" in text


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt", "/run/../secret.txt", "/run/..", "/run/../..", "/run/m40/../../secret.txt",
        "/run/%2e%2e/secret.txt", "/run/%2e%2e%2fsecret.txt", "/run/..%2f..%2f..%2fetc%2fpasswd", "//etc/passwd",
        "/etc/passwd", "/run//etc/passwd", "/run/%2Fetc%2Fpasswd", "/run/m40/secret.txt", "/run/m40/run.json",
        "/run/m40%00", "/run/m40/", "/run/..%5c..%5csecret.txt", "/run/", "/run", "/stamp/run/..", "/stamp/../x",
        "http://127.0.0.1/run/../../secret.txt", "/run/m40/audit.parquet", "/stamp/run/m40/run.json",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(client, path):
    """Inside or outside the folder: only reports and stamps of found runs are answered."""
    status, _, text = client.get(path)
    assert status == 404
    assert "secret" not in text
    assert "root:" not in text


def test_a_run_that_is_a_way_out_is_left_out(make_audit, tmp_path):
    """Links in a folder of runs may lead anywhere; what they lead to is not this folder's to show."""
    outside = make_audit(tmp_path / "elsewhere", checkpoints=3, lenses=())
    folder = tmp_path / "runs"
    (folder / "linked").mkdir(parents=True)
    (folder / "linked" / "run.json").symlink_to(outside / "run.json")
    (folder / "whole").symlink_to(outside, target_is_directory=True)
    assert ServedRuns(folder).runs() == {}
    make_audit(folder / "own", checkpoints=3, lenses=())
    assert list(ServedRuns(folder).runs()) == ["own"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1"])
def test_a_request_for_another_machine_is_refused(client, host):
    """Else a foreign page could rename its own address to 127.0.0.1 and read along."""
    assert client.get("/", host=host.format(port=client.port))[0] == 403
    assert client.get("/", host=f"localhost:{client.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(client, method):
    assert client.get("/", method=method)[0] == 501


def test_a_page_follows_its_run(client, runs):
    """The stamp on the page is what the server says until the run's numbers change."""
    _, _, text = client.get("/run/m40")
    live = json.loads(text.split('id="page-data">')[1].split("</script>")[0])["live"]
    assert client.get(live["url"])[2] == live["stamp"]
    listed = client.get("/stamp/")[2]
    metrics = runs / "m40" / "metrics.parquet"
    metrics.write_bytes(metrics.read_bytes())
    assert client.get(live["url"])[2] != live["stamp"]
    assert client.get("/stamp/")[2] != listed
    assert "connect-src &#39;self&#39;" in text


def test_a_page_is_rendered_once(runs, monkeypatch):
    """Asking every few seconds must not render every few seconds."""
    made = []
    monkeypatch.setattr("undertow.report.server.page_text", lambda runs, live: made.append(live) or "page")
    served = ServedRuns(runs)
    assert [served.report(["m40"], "/stamp/run/m40") for _ in range(3)] == ["page"] * 3
    assert len(made) == 1


def test_an_unfinished_run_is_training_and_a_damaged_one_hides_no_other(make_audit, tmp_path):
    made = make_audit(tmp_path / "runs" / "young", checkpoints=3, lenses=())
    facts = json.loads((made / "run.json").read_text())
    (made / "run.json").write_text(json.dumps({**facts, "finished": None}))
    make_audit(tmp_path / "runs" / "torn", checkpoints=3, lenses=())
    (tmp_path / "runs" / "torn" / "audit.parquet").write_text("<b>half</b>")
    text = ServedRuns(tmp_path / "runs").listing()
    assert ">training</span>" in text
    assert ">damaged</span>" in text
    assert "wanted a table of rows, but it cannot be read" in text


def test_a_damaged_run_is_answered_with_its_reason(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with make_server(tmp_path, port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        status, headers, text = Client(server).get("/run/.")
        server.shutdown()
    assert (status, headers["Content-Type"]) == (500, "text/plain; charset=utf-8")
    assert "wanted JSON, but it cannot be read" in text


def test_a_folder_or_port_that_is_not_there_is_answered(tmp_path, client):
    with pytest.raises(NotThere, match="There is no folder"):
        make_server(tmp_path / "nowhere")
    with pytest.raises(RunProblem, match=f"cannot listen on port {client.port}.*another --port"):
        make_server(tmp_path, client.port)


def test_an_empty_folder_says_so(tmp_path):
    assert "No runs here yet" in ServedRuns(tmp_path).listing()
